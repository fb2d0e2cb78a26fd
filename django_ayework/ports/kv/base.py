"""What a Store is, and how keys and lifetimes are stored."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Protocol, runtime_checkable

from django_ayework.rules.durations import Seconds, later, seconds

# --- protocol ---
# What a Store is.


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


# --- keys ---
# Keys as every database and cache takes them, and times of life.

LONGEST_KEY = 150
PREFIX = "kv:"


def stored_key(key: str) -> str:
    """Return a key as it is stored: as it is if it is plain, hashed otherwise.

    Caches take no spaces; MySQL compares without those at the end; no database takes every character.

    >>> stored_key("rate")
    'kv:rate'
    >>> stored_key("rate of Ann")[:10]
    'kv:sha256:'
    """
    if len(key) > LONGEST_KEY or not key.isascii() or not key.isprintable() or " " in key:
        key = f"sha256:{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()}"
    return PREFIX + key


def end_of(ttl: Seconds | None, now: datetime) -> datetime | None:
    """Return when a key runs out; None for never. Raises ValueError unless ``ttl`` is more than 0."""
    if ttl is None:
        return None
    length = seconds(ttl, "ttl")
    if length == 0:
        raise ValueError(f"expected ttl to be more than 0 seconds, got: {ttl!r}.")
    return later(now, length)


def whole_number(text: str, key: str) -> int:
    """Return a value as a whole number; raise ValueError for another."""
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"expected {key!r} to be set to a whole number, got: {text!r}.") from None
