"""Keys as every database and cache takes them, and times of life."""

from __future__ import annotations

import hashlib
from datetime import datetime

from django_ayework.rules.durations import Seconds, later, seconds

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
