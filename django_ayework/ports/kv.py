"""The Store: texts under keys, for all processes; in memory, in a cache, or in the queue's database."""

from __future__ import annotations

import hashlib
import json
import math
import random
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime, timedelta
from typing import Protocol, TypeAlias, cast, runtime_checkable

from django.core.cache import BaseCache, caches

from django_ayework.compat import after_fork_in_child
from django_ayework.conf import get_settings
from django_ayework.heartbeat import taking_any_time
from django_ayework.rules.durations import Seconds, later, seconds
from django_ayework.rules.rates import Denied, HitResult, Name, Rate, State
from django_ayework.store import entries
from django_ayework.store.database import clock, in_own_transaction

__all__ = ["Store", "get_store"]


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


# In one of Django's caches

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


# In the queue's database


class DatabaseStore:
    """Keeps everything in the table of ``StoreEntry``, pruned by workers.

    What is done inside a transaction on the queue's database is part of it. Values are stored as JSON texts,
    so that every database keeps every character, spaces at the end too.
    """

    def get(self, key: str) -> str | None:
        """See Store.get()."""
        found = entries.value_of(stored_key(key), clock.read())
        return None if found is None else str(json.loads(found))

    def set(self, key: str, value: str, ttl: Seconds | None = None) -> None:
        """See Store.set()."""
        end = end_of(ttl, clock.read())
        in_own_transaction(entries.put, stored_key(key), json.dumps(value), end)

    def delete(self, key: str) -> None:
        """See Store.delete()."""
        in_own_transaction(entries.remove, stored_key(key))

    def set_if_absent(self, key: str, value: str, ttl: Seconds | None = None) -> bool:
        """See Store.set_if_absent()."""
        now = clock.read()
        stored = json.dumps(value)
        return in_own_transaction(entries.set_if_absent, stored_key(key), stored, now, end_of(ttl, now))

    def increment(self, key: str, by: int = 1, ttl: Seconds | None = None) -> int:
        """See Store.increment()."""
        while True:
            if self.set_if_absent(key, str(by), ttl):
                return by
            number = in_own_transaction(self._add, key, by)
            if number is not None:
                return number

    def swap(self, key: str, expected: str | None, value: str, ttl: Seconds | None = None) -> bool:
        """See Store.swap()."""
        if expected is None:
            return self.set_if_absent(key, value, ttl)
        now = clock.read()
        before, after = json.dumps(expected), json.dumps(value)
        return in_own_transaction(entries.replace, stored_key(key), before, after, now, end_of(ttl, now))

    def _add(self, key: str, by: int) -> int | None:
        """Add to a key that is set, under its row's lock; None if it has run out meanwhile."""
        found = entries.lock_value(stored_key(key), clock.read())
        if found is None:
            return None
        number = whole_number(str(json.loads(found)), key) + by
        entries.change_value(stored_key(key), json.dumps(str(number)))
        return number


# The Store of the settings

#: Ours: one object of each for all threads, as what the local one holds is in the object.
LOCAL = LocalStore()
BUILT_IN: dict[str, Store] = {"database": DatabaseStore(), "cache": CacheStore(), "local": LOCAL}
after_fork_in_child(LOCAL.renew_lock)


def get_store() -> Store:
    """Return the Store of ``AYEWORK["STORE"]``."""
    chosen = get_settings().store
    return BUILT_IN[chosen] if isinstance(chosen, str) else cast(Store, chosen)


# Limits that hold for the whole fleet: their counts are in the Store.

#: How often a hit that others get ahead of is tried again, before it is put off.
TRIES = 20


def hit(rate: Rate, name: Name) -> HitResult:
    """Count a hit under a name, if it is within the limit for all processes together.

    The count is read, and written only if nobody else has written it meanwhile; a refused hit writes nothing.
    A hit that loses again and again is denied, with nothing to wait for: others were counted each time.
    """
    store, key = get_store(), key_of(rate, name)
    with asking(store):
        for _ in range(TRIES):
            before = store.get(key)
            rate.state = state_of(before)
            answer = rate.hit(clock.read())
            if not answer or store.swap(key, before, text_of(rate.state), ttl=rate.life):
                return answer
    return Denied(0.0)


def peek(rate: Rate, name: Name) -> HitResult:
    """Return what a hit would return."""
    store = get_store()
    with asking(store):
        rate.state = state_of(store.get(key_of(rate, name)))
        return rate.peek(clock.read())


def asking(store: Store) -> AbstractContextManager[None]:
    """Return a block that asks a Store. Only statements of the engine's are bounded."""
    return nullcontext() if store is BUILT_IN["database"] else taking_any_time()


def key_of(rate: Rate, name: Name) -> str:
    """Return the key of a count: short, whatever the name's length.

    What is counted differently is counted apart, so no count is read by other rules than it was written by.
    """
    parts = [type(rate).__name__, rate.limit, rate.window, *name]
    return f"rate:{hashlib.sha256(json.dumps(parts).encode()).hexdigest()}"


def text_of(state: State | None) -> str:
    """Return a count as a text."""
    return " ".join(map(str, state or ()))


def state_of(text: str | None) -> State | None:
    """Return a count that was written as a text; None for any other text.

    >>> state_of(text_of((3, 141592))), state_of(None), state_of("scribble")
    ((3, 141592), None, None)
    """
    try:
        return tuple(map(int, text.split())) or None if text else None
    except ValueError:
        return None
