"""The Store that the settings name."""

from __future__ import annotations

from typing import cast

from django_ayework.conf import get_settings
from django_ayework.forking import after_fork_in_child
from django_ayework.ports.kv.cache import CacheStore
from django_ayework.ports.kv.database import DatabaseStore
from django_ayework.ports.kv.local import LocalStore
from django_ayework.ports.kv.protocol import Store

#: Ours: one object of each for all threads, as what the local one holds is in the object.
LOCAL = LocalStore()
BUILT_IN: dict[str, Store] = {"database": DatabaseStore(), "cache": CacheStore(), "local": LOCAL}
after_fork_in_child(LOCAL.renew_lock)


def get_store() -> Store:
    """Return the Store of ``AYEWORK["STORE"]``."""
    chosen = get_settings().store
    return BUILT_IN[chosen] if isinstance(chosen, str) else cast(Store, chosen)
