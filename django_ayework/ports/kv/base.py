"""The protocol of a Store, the form of keys and lifetimes, and the Store within one process."""

from __future__ import annotations

import hashlib
import threading
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Protocol, TypeAlias, runtime_checkable

from django_ayework.rules.durations import Seconds, later, seconds
from django_ayework.store.database import clock


@runtime_checkable
class Store(Protocol):
    """Texts under keys, the same for every process that it reaches.

    Keys and values are any texts. ``ttl`` (seconds or timedelta, more than 0) is how long a key stays; None
    keeps it for good. A key that has run out counts as not set. ``set_if_absent``, ``increment`` and ``swap``
    are atomic: of several processes at the same moment, each sees the result of the one before.

    ``django_ayework.testing.conformance.StoreConformance`` tells whether an implementation does this.
    """

    def get(self, key: str) -> str | None:
        """Return what a key is set to, or None."""
        ...

    def set(self, key: str, value: str, ttl: Seconds | None = None) -> None:
        """Set a key, whether or not it was set before; its ``ttl`` begins anew."""
        ...

    def delete(self, key: str) -> None:
        """Delete a key, if it is there."""
        ...

    def set_if_absent(self, key: str, value: str, ttl: Seconds | None = None) -> bool:
        """Set a key unless it is set; return whether this call has set it."""
        ...

    def increment(self, key: str, by: int = 1, ttl: Seconds | None = None) -> int:
        """Add to the whole number that a key is set to (0 if it is not set); return the sum.

        ``ttl`` applies to a new key; an existing key keeps its own. Raises ValueError, and changes nothing,
        if the value is no whole number.
        """
        ...

    def swap(self, key: str, expected: str | None, value: str, ttl: Seconds | None = None) -> bool:
        """Set a key if it has exactly the expected value (None: not set); return whether it was set.

        Its ``ttl`` begins anew.
        """
        ...


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


#: A value, and when it runs out.
Entry: TypeAlias = tuple[str, datetime | None]


class EntryStore:
    """A Store that writes each entry under a lock of its key."""

    def get(self, key: str) -> str | None:
        """See Store.get()."""
        found = self._living(key)
        return found[0] if found else None

    def set(self, key: str, value: str, ttl: Seconds | None = None) -> None:
        """See Store.set()."""
        with self._locked(key):
            self._write(key, (value, end_of(ttl, clock.now())))

    def delete(self, key: str) -> None:
        """See Store.delete()."""
        with self._locked(key):
            self._write(key, None)

    def set_if_absent(self, key: str, value: str, ttl: Seconds | None = None) -> bool:
        """See Store.set_if_absent()."""
        return self.swap(key, None, value, ttl)

    def increment(self, key: str, by: int = 1, ttl: Seconds | None = None) -> int:
        """See Store.increment()."""
        with self._locked(key):
            value, end = self._living(key) or ("0", end_of(ttl, clock.now()))
            number = whole_number(value, key) + by
            self._write(key, (str(number), end))
            return number

    def swap(self, key: str, expected: str | None, value: str, ttl: Seconds | None = None) -> bool:
        """See Store.swap()."""
        with self._locked(key):
            if self.get(key) != expected:
                return False
            self._write(key, (value, end_of(ttl, clock.now())))
            return True

    def _living(self, key: str) -> Entry | None:
        """Return an entry that has not run out."""
        found = self._read(key)
        return found if found and is_living(found[1], clock.now()) else None

    def _locked(self, key: str) -> AbstractContextManager[object]:
        """Keep others from writing a key."""
        raise NotImplementedError

    def _read(self, key: str) -> Entry | None:
        """Return an entry."""
        raise NotImplementedError

    def _write(self, key: str, entry: Entry | None) -> None:
        """Write an entry, or delete it."""
        raise NotImplementedError


def is_living(end: datetime | None, now: datetime) -> bool:
    """Return whether something with this end has not run out."""
    return end is None or now < end


#: How often keys that have run out are dropped, at most.
TIDY_EVERY = timedelta(minutes=1)


class LocalStore(EntryStore):
    """Keeps everything in memory; other processes see nothing of it."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._tidy_at = clock.now() + TIDY_EVERY
        self.renew_lock()

    def renew_lock(self) -> None:
        """Make a lock for this process: a thread of its parent may hold the one before."""
        self._lock = threading.RLock()

    def _locked(self, key: str) -> AbstractContextManager[object]:
        return self._lock

    def _read(self, key: str) -> Entry | None:
        return self._entries.get(key)

    def _write(self, key: str, entry: Entry | None) -> None:
        """See EntryStore; now and then, drop the entries that have run out."""
        now = clock.now()
        if now >= self._tidy_at:
            self._tidy_at = now + TIDY_EVERY
            self._entries = {k: found for k, found in self._entries.items() if is_living(found[1], now)}
        if entry is None:
            self._entries.pop(key, None)
        else:
            self._entries[key] = entry
