"""What a process hears by."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class CannotHear(Exception):
    """Messages will never arrive here; the text says why, and what to do."""


class Ear(Protocol):
    """A connection by which messages are heard. One thread uses it, and any may ring."""

    def follow(self, channels: set[str]) -> bool:
        """Hear these channels from now on, and no others; return False if somebody rings before that.

        Raises CannotHear, or what the driver raises.
        """
        ...

    def hear(self, seconds: float) -> Iterable[tuple[str | None, str]]:
        """Wait for messages at most that long; return them with their channels, None for all channels."""
        ...

    def ring(self) -> None:
        """Let ``hear`` return soon."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...
