"""What a Store is."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from django_ayework.rules.durations import Seconds


@runtime_checkable
class Store(Protocol):
    """Texts under keys, the same for every process that it reaches.

    Keys and values are any texts. ``ttl`` (seconds or timedelta, more than 0) is how long a key stays; None
    keeps it for good. A key that has run out is as good as none. Everything that reads and writes is one
    step: of several processes at the same moment, each sees what the one before has left.

    ``django_ayework.testing.conformance.StoreConformance`` tells whether an implementation does this.
    """

    def get(self, key: str) -> str | None:
        """Return what a key is set to, or None."""
        ...

    def set(self, key: str, value: str, ttl: Seconds | None = None) -> None:
        """Set a key, whether it is set or not; its time begins anew."""
        ...

    def delete(self, key: str) -> None:
        """Delete a key, if it is there."""
        ...

    def set_if_absent(self, key: str, value: str, ttl: Seconds | None = None) -> bool:
        """Set a key unless it is set; return whether it was set now. One of several at once wins."""
        ...

    def increment(self, key: str, by: int = 1, ttl: Seconds | None = None) -> int:
        """Add to the whole number a key is set to, 0 if it is not; return the sum.

        ``ttl`` is for a key that is new; one that is there keeps its time. Raises ValueError, and changes
        nothing, if the key is set to something else than a whole number.
        """
        ...

    def swap(self, key: str, expected: str | None, value: str, ttl: Seconds | None = None) -> bool:
        """Set a key if it is set to exactly what is expected (None: not set); return whether it was.

        Its time begins anew.
        """
        ...
