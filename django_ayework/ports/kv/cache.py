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

from django_ayework.ports.kv.base import Entry, EntryStore, stored_key
from django_ayework.store.database import clock

#: Seconds after which the lock of a process that died is free again.
LOCK_LIFE = 10
#: Seconds to try for a lock: long enough to outlive one whose holder died.
PATIENCE = 15.0
#: Seconds the cache keeps an entry beyond its end, as its clock is another. The end itself is in the entry.
SLACK = 60


class CacheStore(EntryStore):
    """Keeps everything in a cache of the setting ``CACHES``, which all processes must share.

    Caches have no step that compares and sets, so each key that is written is locked meanwhile, by a key of
    its own that one process can add. A cache may drop its keys at any time: then a key is as good as
    none.
    """

    def __init__(self, alias: str = "default") -> None:
        self.alias = alias

    @property
    def _cache(self) -> BaseCache:
        """This thread's connection to the cache."""
        return caches[self.alias]

    def _read(self, key: str) -> Entry | None:
        found = self._cache.get(stored_key(key))
        if found is None:
            return None
        value, moment = json.loads(found)
        return value, datetime.fromisoformat(moment) if moment else None

    def _write(self, key: str, entry: Entry | None) -> None:
        if entry is None:
            self._cache.delete(stored_key(key))
            return
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
