"""Locks on keys: what has no row yet can be locked by name, until the transaction ends."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import datetime

from django_ayework.models import StoreEntry
from django_ayework.store.database import chunked, connection, stored_moment


def lock_keys(keys: Iterable[tuple[str, ...]], expires_at: datetime) -> None:
    """Make every other locker of these keys wait until our transaction has ended.

    In one order for all, so that two batches cannot wait for each other. The rows mean nothing once their
    transaction has ended; they expire so that pruning removes them.
    """
    names = sorted(set(map(lock_name, keys)))
    quote = connection().ops.quote_name
    key, expiry = quote("key"), quote("expires_at")
    into = f"INSERT INTO {quote(StoreEntry._meta.db_table)} ({key}, {quote('value')}, {expiry}) VALUES "
    on_conflict = (
        "ON DUPLICATE KEY UPDATE" if connection().vendor == "mysql" else f"ON CONFLICT ({key}) DO UPDATE SET"
    )
    end = stored_moment(expires_at)
    for some in chunked(names):
        values = ", ".join(["(%s, '', %s)"] * len(some))
        params = [param for name in some for param in (name, end)]
        with connection().cursor() as cursor:
            cursor.execute(f"{into}{values} {on_conflict} {expiry} = %s", [*params, end])


def lock_name(key: tuple[str, ...]) -> str:
    """Return the name of a key's lock row: short, whatever the key's length; its first part says what for."""
    return f"{key[0]}:" + hashlib.sha256("\0".join(key[1:]).encode()).hexdigest()
