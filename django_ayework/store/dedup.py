"""Finding works by their dedup key, one enqueuer of a key at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from django.db.models import F, Q, Window
from django.db.models.functions import RowNumber

from django_ayework.models import StoreEntry, Work
from django_ayework.rules.dedup import Scope
from django_ayework.store.database import chunked, connection, rows, stored_moment


class Search(NamedTuple):
    """What must hold of a match besides its key."""

    type: str
    scope: Scope
    since: datetime | None
    exclude: tuple[str, ...]


def lock_keys(keys: Iterable[tuple[str, str]], expires_at: datetime) -> None:
    """Make every other enqueuer of these (type, key) pairs wait until our transaction has ended.

    In one order for all, so that two batches cannot wait for each other. The rows mean nothing once their
    transaction has ended; they expire so that pruning removes them.
    """
    names = sorted({lock_name(type, key) for type, key in keys})
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


def lock_name(type: str, key: str) -> str:
    """Return the name of a pair's lock row: short, whatever the key's length."""
    return "dedup:" + hashlib.sha256(f"{type}\0{key}".encode()).hexdigest()


def newest_matches(search: Search, keys: Sequence[str]) -> dict[str, str]:
    """Return, by key, the id of the newest work that matches."""
    newest_first = Window(
        RowNumber(), partition_by=F("dedup_key"), order_by=[F("queued_at").desc(), F("id").desc()]
    )
    found: dict[str, str] = {}
    for some in chunked(keys):
        matching = rows(Work).filter(matches(search), dedup_key__in=some).annotate(place=newest_first)
        found.update((key, id) for key, id in matching.filter(place=1).values_list("dedup_key", "id") if key)
    return found


def matches(search: Search) -> Q:
    """Return the condition: which works of a type and key count as there."""
    condition = Q(type=search.type, dedup_key__isnull=False)
    if search.scope == "incomplete":
        condition &= Q(ended_at__isnull=True)
    if search.since is not None:
        condition &= Q(queued_at__gte=search.since)
    if search.exclude:
        condition &= ~Q(id__in=search.exclude)
    return condition
