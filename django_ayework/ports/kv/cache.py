"""The Store in one of Django's caches."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from django.core.cache import BaseCache, caches

from django_ayework.ports.kv.base import end_of, stored_key, whole_number
from django_ayework.ports.kv.local import is_living
from django_ayework.rules.durations import Seconds
from django_ayework.store.clock import clock

#: Seconds after which the lock of a process that died is free again.
LOCK_LIFE = 10
#: Seconds to try for a lock: long enough to outlive one whose holder died.
PATIENCE = 15.0
#: Seconds the cache keeps an entry beyond its end, as its clock is another. The end itself is in the entry.
SLACK = 60

Entry = tuple[str, datetime | None]


class CacheStore:
    """Keeps everything in a cache of the setting ``CACHES``, which all processes must share.

    Caches have no step that compares and sets, so each key that is written is locked meanwhile, by a key of
    its own that one process can add. A cache may drop what it holds at any time: then a key is as good as
    none.
    """

    def __init__(self, alias: str = "default") -> None:
        self.alias = alias

    def get(self, key: str) -> str | None:
        """See Store.get()."""
        found = self._read(key)
        return found[0] if found else None

    def set(self, key: str, value: str, ttl: Seconds | None = None) -> None:
        """See Store.set()."""
        with self._locked(key):
            self._write(key, (value, end_of(ttl, clock.now())))

    def delete(self, key: str) -> None:
        """See Store.delete()."""
        with self._locked(key):
            self._cache.delete(stored_key(key))

    def set_if_absent(self, key: str, value: str, ttl: Seconds | None = None) -> bool:
        """See Store.set_if_absent()."""
        return self.swap(key, None, value, ttl)

    def increment(self, key: str, by: int = 1, ttl: Seconds | None = None) -> int:
        """See Store.increment()."""
        with self._locked(key):
            value, end = self._read(key) or ("0", end_of(ttl, clock.now()))
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

    @property
    def _cache(self) -> BaseCache:
        """This thread's connection to the cache."""
        return caches[self.alias]

    def _read(self, key: str) -> Entry | None:
        """Return an entry that has not run out."""
        found = self._cache.get(stored_key(key))
        if found is None:
            return None
        value, moment = json.loads(found)
        end = datetime.fromisoformat(moment) if moment else None
        return (value, end) if is_living(end, clock.now()) else None

    def _write(self, key: str, entry: Entry) -> None:
        """Write an entry."""
        value, end = entry
        left = None if end is None else math.ceil((end - clock.now()).total_seconds()) + SLACK
        self._cache.set(stored_key(key), json.dumps([value, end and end.isoformat()]), left)

    @contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        """Keep others from writing a key. Raises TimeoutError when somebody else keeps it for too long."""
        lock = stored_key(key) + ":lock"
        until = time.monotonic() + PATIENCE
        while not self._cache.add(lock, "", LOCK_LIFE):
            if time.monotonic() > until:
                raise TimeoutError(f"the cache {self.alias!r} keeps {key!r} locked; is it there, and shared?")
            time.sleep(random.uniform(0.001, 0.01))  # noqa: S311  # spreads rivals, no secret
        taken_at = time.monotonic()
        try:
            yield
        finally:
            if time.monotonic() - taken_at < LOCK_LIFE:  # else it may be somebody else's by now
                self._cache.delete(lock)
