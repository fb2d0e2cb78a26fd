"""A Store within one process: for tests, and for a site that is one process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta

from django_ayework.ports.kv.base import end_of, whole_number
from django_ayework.rules.durations import Seconds
from django_ayework.store.clock import clock

#: How often keys that have run out are dropped, at most.
TIDY_EVERY = timedelta(minutes=1)


class LocalStore:
    """Keeps everything in memory; other processes see nothing of it."""

    def __init__(self, now: Callable[[], datetime] = clock.now) -> None:
        self._now = now
        self._entries: dict[str, tuple[str, datetime | None]] = {}
        self._tidy_at = now() + TIDY_EVERY
        self.renew_lock()

    def renew_lock(self) -> None:
        """Make a lock for this process: a thread of its parent may hold the one before."""
        self._lock = threading.RLock()

    def get(self, key: str) -> str | None:
        """See Store.get()."""
        with self._lock:
            found = self._living(key)
            return found[0] if found else None

    def set(self, key: str, value: str, ttl: Seconds | None = None) -> None:
        """See Store.set()."""
        with self._lock:
            self._put(key, value, end_of(ttl, self._now()))

    def delete(self, key: str) -> None:
        """See Store.delete()."""
        with self._lock:
            self._entries.pop(key, None)

    def set_if_absent(self, key: str, value: str, ttl: Seconds | None = None) -> bool:
        """See Store.set_if_absent()."""
        return self.swap(key, None, value, ttl)

    def increment(self, key: str, by: int = 1, ttl: Seconds | None = None) -> int:
        """See Store.increment()."""
        with self._lock:
            value, end = self._living(key) or ("0", end_of(ttl, self._now()))
            number = whole_number(value, key) + by
            self._put(key, str(number), end)
            return number

    def swap(self, key: str, expected: str | None, value: str, ttl: Seconds | None = None) -> bool:
        """See Store.swap()."""
        with self._lock:
            if self.get(key) != expected:
                return False
            self.set(key, value, ttl)
            return True

    def _living(self, key: str) -> tuple[str, datetime | None] | None:
        """Return an entry that has not run out."""
        found = self._entries.get(key)
        return found if found and is_living(found[1], self._now()) else None

    def _put(self, key: str, value: str, end: datetime | None) -> None:
        """Keep an entry; now and then, drop those that have run out."""
        now = self._now()
        if now >= self._tidy_at:
            self._tidy_at = now + TIDY_EVERY
            self._entries = {
                other: entry for other, entry in self._entries.items() if is_living(entry[1], now)
            }
        self._entries[key] = value, end


def is_living(end: datetime | None, now: datetime) -> bool:
    """Tell whether something with this end has not run out."""
    return end is None or now < end
