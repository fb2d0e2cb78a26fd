"""What a codec must be able to do."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Codec(Protocol):
    """Turns the values of a work into text for the database, and back.

    The text must be free of NUL characters and encodable as UTF-8, as every supported database asks.
    """

    def encode(self, value: Any) -> str:
        """Return the text for ``value``, or raise ``NotEncodable``."""
        ...

    def decode(self, text: str) -> Any:
        """Return the value ``text`` stands for, or raise ``NotDecodable``."""
        ...
