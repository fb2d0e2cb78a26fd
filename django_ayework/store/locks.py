"""Leases, named locks, and rows that other transactions have locked."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from django.db.models import Model, Q

from django_ayework.models import StoreEntry, Work
from django_ayework.rules.controls import EVERYTHING, Scope
from django_ayework.rules.states import Status
from django_ayework.store.database import (
    atomic,
    chunked,
    connection,
    dialect,
    fetch,
    rows,
    stored_moment,
)
from django_ayework.store.rows import WorkRow, rows_of

# --- leases ---
# Leases: a worker that stays silent for too long loses its works.

#: Each lease is found by its id, and fenced by its delivery; ARRAY() makes the planner lock exactly once.
RENEW = """
UPDATE django_ayework_work
SET leased_until = %s
WHERE id = ANY(ARRAY(
    SELECT w.id
    FROM unnest(%s::text[], %s::bigint[]) AS held(id, delivery)
    JOIN django_ayework_work AS w ON w.id = held.id AND w.delivery = held.delivery
    WHERE w.worker = %s AND w.status = 'running'
    FOR UPDATE OF w SKIP LOCKED
))
RETURNING id
"""


class Holder(NamedTuple):
    """Who holds a work, and how it stands."""

    status: str
    delivery: int
    worker: str | None


def renew(deliveries: Mapping[str, int], worker: str, leased_until: datetime) -> set[str]:
    """Extend the leases this worker holds at these deliveries; return the ids renewed.

    Rows locked by a settlement are skipped: that one is about to end the lease anyway.
    """
    renew_some = renew_set_based if dialect().has_arrays else renew_under_locks
    renewed: set[str] = set()
    for some in chunked(sorted(deliveries)):
        renewed |= renew_some({id: deliveries[id] for id in some}, worker, leased_until)
    return renewed


def renew_set_based(deliveries: Mapping[str, int], worker: str, leased_until: datetime) -> set[str]:
    """One statement, its own transaction."""
    held = [list(deliveries), list(deliveries.values())]
    return {row[0] for row in fetch(RENEW, [leased_until, *held, worker])}


def renew_under_locks(deliveries: Mapping[str, int], worker: str, leased_until: datetime) -> set[str]:
    """Lock what is still held, then write it; on SQLite the transaction itself is the lock."""
    with atomic():
        held = rows(Work).select_for_update(skip_locked=True)
        held = held.filter(id__in=list(deliveries), worker=worker, status=Status.RUNNING).order_by("id")
        ids = [id for id, delivery in held.values_list("id", "delivery") if deliveries[id] == delivery]
        rows(Work).filter(id__in=ids).update(leased_until=leased_until)
    return set(ids)


def holders_of(ids: Iterable[str]) -> dict[str, Holder]:
    """Return who holds each work that exists."""
    found = rows(Work).filter(id__in=list(ids)).values_list("id", *Holder._fields)
    return {row[0]: Holder._make(row[1:]) for row in found}


def lock_lapsed(
    now: datetime,
    limit: int,
    sparing: Collection[str],
    types: Collection[str],
    forsaken: datetime,
    scope: Scope = EVERYTHING,
) -> list[WorkRow]:
    """Lock running works of this scope and these types whose lease has lapsed, the longest first.

    Those that others have locked, or that are spared, are left out; so that they keep nobody from those
    behind them, they do not count for ``limit``. A lease that lapsed before ``forsaken`` may be of any type
    of the scope.
    """
    lapsed = rows(Work).filter(status=Status.RUNNING, leased_until__lt=now).order_by("leased_until")
    lapsed = lapsed.filter(Q(type__in=types) | Q(leased_until__lt=forsaken), within(scope))
    if sparing:
        lapsed = lapsed.exclude(id__in=sparing)
    return rows_of(lapsed.select_for_update(skip_locked=True)[:limit])


def within(scope: Scope) -> Q:
    """Return the condition that a work is of this scope."""
    condition = Q()
    if scope.queues:
        condition &= Q(queue__in=scope.queues)
    if scope.types:
        condition &= Q(type__in=scope.types)
    if scope.exclude_types:
        condition &= ~Q(type__in=scope.exclude_types)
    return condition


def lock_overdue(now: datetime, limit: int) -> list[WorkRow]:
    """Lock blocked works that are past their deadline."""
    overdue = rows(Work).filter(status=Status.BLOCKED, deadline__lt=now).order_by("deadline")
    return rows_of(overdue.select_for_update(skip_locked=True)[:limit])


# --- keys ---
# Locks on keys: what has no row yet can be locked by name, until the transaction ends.


def lock_keys(keys: Iterable[tuple[str, ...]], expires_at: datetime) -> None:
    """Make every other locker of these keys wait until our transaction has ended.

    In one order for all, so that two batches cannot wait for each other. The rows mean nothing once their
    transaction has ended; they expire so that pruning removes them.
    """
    names = sorted(set(map(lock_name, keys)))
    quote = connection().ops.quote_name
    key, expiry = quote("key"), quote("expires_at")
    into = f"INSERT INTO {quote(StoreEntry._meta.db_table)} ({key}, {quote('value')}, {expiry}) VALUES "
    on_conflict = dialect().on_conflict_update.format(key=key)
    end = stored_moment(expires_at)
    for some in chunked(names):
        values = ", ".join(["(%s, '', %s)"] * len(some))
        params = [param for name in some for param in (name, end)]
        with connection().cursor() as cursor:
            cursor.execute(f"{into}{values} {on_conflict} {expiry} = %s", [*params, end])


def lock_name(key: tuple[str, ...]) -> str:
    """Return the name of a key's lock row: short, whatever the key's length; its first part says what for."""
    return f"{key[0]}:" + hashlib.sha256("\0".join(key[1:]).encode()).hexdigest()


# --- locks ---
# Which rows somebody else has locked at this moment.


def locked_by_others(model: type[Model], keys: Iterable[str]) -> set[str]:
    """Return the keys of those rows that other transactions have locked; none of ours stays locked.

    On SQLite nobody else has locked anything while this transaction lasts.
    """
    locked: set[str] = set()
    for some in chunked(sorted(set(keys))):
        locked |= locked_among(model, some)
    return locked


def locked_among(model: type[Model], keys: Collection[str]) -> set[str]:
    """Lock what can be locked at once; what is there besides is locked by others."""
    with atomic():
        free = set(
            rows(model).select_for_update(skip_locked=True).filter(pk__in=keys).values_list("pk", flat=True)
        )
        if len(free) == len(keys):
            return set()
        return set(rows(model).filter(pk__in=keys).values_list("pk", flat=True)) - free
