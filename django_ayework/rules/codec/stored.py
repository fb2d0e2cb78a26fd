"""Exceptions, kept as a name and a message."""

from __future__ import annotations

from typing import Any


class StoredException(Exception):
    """What is left of an exception after it was stored: the name of its class and its message.

    The original class is neither imported nor called.

    >>> StoredException("ValueError", "no such colour")
    StoredException('ValueError', 'no such colour')
    >>> print(StoredException("ValueError", "no such colour"))
    ValueError: no such colour
    """

    def __init__(self, name: str, message: str) -> None:
        super().__init__(name, message)
        self.name = name
        self.message = message

    def __str__(self) -> str:
        return f"{self.name}: {self.message}" if self.message else self.name

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StoredException):
            return NotImplemented
        return (self.name, self.message) == (other.name, other.message)

    def __hash__(self) -> int:
        return hash((self.name, self.message))


def exception_to_plain(error: BaseException) -> dict[str, str]:
    """Return the name and the message of ``error``.

    >>> exception_to_plain(ZeroDivisionError("division by zero"))
    {'name': 'ZeroDivisionError', 'message': 'division by zero'}
    """
    if isinstance(error, StoredException):
        return {"name": error.name, "message": error.message}
    return {"name": type(error).__name__, "message": message_of(error)}


def message_of(error: BaseException) -> str:
    """Return ``str(error)``, or a note if even that fails."""
    try:
        return str(error)
    except Exception:
        return "<its message cannot be read>"


def exception_from_plain(plain: Any) -> StoredException:
    """Return the stored exception; raise ValueError if ``plain`` is not the name and the message."""
    if type(plain) is not dict or plain.keys() != {"name", "message"}:
        raise ValueError("expected a name and a message")
    if not all(type(part) is str for part in plain.values()):
        raise ValueError("expected the name and the message to be texts")
    return StoredException(plain["name"], plain["message"])
