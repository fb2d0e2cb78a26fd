"""The Store: texts under keys, for all processes."""

from __future__ import annotations

import hashlib
import json
from contextlib import AbstractContextManager, nullcontext
from typing import cast

from django_ayework.compat import after_fork_in_child
from django_ayework.conf import get_settings
from django_ayework.heartbeat import taking_any_time
from django_ayework.ports.kv.base import LocalStore, Store
from django_ayework.ports.kv.cache import CacheStore
from django_ayework.ports.kv.database import DatabaseStore
from django_ayework.rules.rates import Denied, HitResult, Name, Rate, State
from django_ayework.store.database import clock

__all__ = ["Store", "get_store"]

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
