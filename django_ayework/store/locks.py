"""Leases, named locks, keys with an end, and rows that other transactions have locked."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from django.db.models import Model, Q
from django.db.models.query import QuerySet

from django_ayework.models import StoreEntry, Work
from django_ayework.rules.controls import EVERYTHING, Scope
from django_ayework.rules.states import Status
from django_ayework.store.database import (
    CHUNK,
    atomic,
    chunked,
    connection,
    dialect,
    matching,
    rows,
    stored_moment,
)
from django_ayework.store.rows import WorkRow, rows_of

# Leases: a worker that stays silent for too long loses its works.


class Holder(NamedTuple):
    """The worker that holds a work, and the work's status."""

    status: str
    delivery: int
    worker: str | None


def renew(deliveries: Mapping[str, int], worker: str, leased_until: datetime) -> set[str]:
    """Extend the leases this worker holds at these deliveries; return the ids renewed.

    Rows locked by a settlement are skipped: that one is about to end the lease anyway.
    """
    renewed: set[str] = set()
    for some in chunked(sorted(deliveries)):
        with atomic():
            running = rows(Work).filter(id__in=some, worker=worker, status=Status.RUNNING).order_by("id")
            held = running.select_for_update(skip_locked=True).values_list("id", "delivery")
            ids = [id for id, delivery in held if deliveries[id] == delivery]
            rows(Work).filter(id__in=ids).update(leased_until=leased_until)
        renewed.update(ids)
    return renewed


def holders_of(ids: Iterable[str]) -> dict[str, Holder]:
    """Return who holds each work that exists."""
    found = rows(Work).filter(id__in=list(ids)).values_list("id", *Holder._fields)
    return {row[0]: Holder._make(row[1:]) for row in found}


def lock_lapsed(
    now: datetime,
    limit: int,
    sparing: Collection[str],
    types: Collection[str],
    any_type_before: datetime,
    scope: Scope = EVERYTHING,
) -> list[WorkRow]:
    """Lock running works of this scope and these types whose lease has lapsed, the longest first.

    Works that other transactions have locked, and those in ``sparing``, are skipped. They do not count for
    ``limit``, so they do not hold up the works behind them. A work whose lease lapsed before
    ``any_type_before`` is taken even if its type is not in ``types``.
    """
    lapsed = rows(Work).filter(status=Status.RUNNING, leased_until__lt=now).order_by("leased_until")
    lapsed = lapsed.filter(Q(type__in=types) | Q(leased_until__lt=any_type_before), within(scope))
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


# Locks on keys: a name can be locked before a row has it, until the transaction ends.


def lock_keys(keys: Iterable[tuple[str, ...]], expires_at: datetime) -> None:
    """Make every other locker of these keys wait until our transaction has ended.

    In one order for all, so that two batches cannot wait for each other. The rows mean nothing once their
    transaction has ended; they expire so that pruning removes them.
    """
    names = sorted(set(map(lock_name, keys)))
    write_entries([StoreEntry(key=name, value="", expires_at=expires_at) for name in names])


def lock_name(key: tuple[str, ...]) -> str:
    """Return the name of a key's lock row: short, whatever the key's length; its first part says what for."""
    return f"{key[0]}:" + hashlib.sha256("\0".join(key[1:]).encode()).hexdigest()


# Which rows somebody else has locked at this moment.


def locked_by_others(model: type[Model], keys: Iterable[str]) -> set[str]:
    """Return the keys of those rows that other transactions have locked; none of ours stays locked.

    On SQLite nobody else has locked anything while this transaction lasts.
    """
    wanted = sorted(set(keys))
    with atomic():
        free = matching(rows(model).select_for_update(skip_locked=True), "pk", wanted, "pk")
        there = matching(rows(model).all(), "pk", wanted, "pk") if len(free) < len(wanted) else free
    return {key for (key,) in {*there} - {*free}}


def set_if_absent(key: str, value: str, now: datetime, expires_at: datetime | None) -> bool:
    """Set a key unless it is set and has not expired; return whether it was set. One winner per key."""
    rows(StoreEntry).filter(key=key, expires_at__lte=now).delete()
    quote = connection().ops.quote_name
    columns = ", ".join(map(quote, ("key", "value", "expires_at")))
    verb, ending = dialect().insert_ignore
    with connection().cursor() as cursor:
        cursor.execute(
            f"{verb} INTO {quote(StoreEntry._meta.db_table)} ({columns}) VALUES (%s, %s, %s) {ending}",
            (key, value, stored_moment(expires_at)),
        )
        return bool(cursor.rowcount == 1)


def is_set(key: str, now: datetime) -> bool:
    """Tell whether a key is set and has not expired."""
    return living(key, now).exists()


def value_of(key: str, now: datetime) -> str | None:
    """Return what a key is set to, or None."""
    return living(key, now).values_list("value", flat=True).first()


def put(key: str, value: str, expires_at: datetime | None) -> None:
    """Set a key, whether it was set or not."""
    write_entries([StoreEntry(key=key, value=value, expires_at=expires_at)])


def write_entries(entries: Sequence[StoreEntry]) -> None:
    """Insert keys, or update those that are there; each is locked in this order."""
    names_its_target = connection().features.supports_update_conflicts_with_target
    rows(StoreEntry).bulk_create(
        entries,
        batch_size=CHUNK,
        update_conflicts=True,
        update_fields=["value", "expires_at"],
        unique_fields=["key"] if names_its_target else None,
    )


def replace(key: str, expected: str, value: str, now: datetime, expires_at: datetime | None) -> bool:
    """Set a key if it has the expected value; return whether it was. Of several at once, one wins.

    Values are compared byte by byte, but MariaDB and MySQL overlook spaces at their end.
    """
    matching = living(key, now).filter(value=expected)
    return matching.update(value=value, expires_at=expires_at) == 1


def lock_value(key: str, now: datetime) -> str | None:
    """Return what a key is set to, and keep others from changing it until our transaction has ended."""
    return living(key, now).select_for_update().values_list("value", flat=True).first()


def change_value(key: str, value: str) -> None:
    """Change what a key is set to, and leave its end alone."""
    rows(StoreEntry).filter(key=key).update(value=value)


def remove(key: str) -> None:
    """Delete a key, if it is there."""
    rows(StoreEntry).filter(key=key).delete()


def delete_expired(now: datetime, limit: int) -> int:
    """Delete up to ``limit`` expired keys, passing over those that a transaction is using."""
    with atomic():
        expired = rows(StoreEntry).filter(expires_at__lte=now).select_for_update(skip_locked=True)
        keys = list(expired.values_list("key", flat=True)[:limit])
        return rows(StoreEntry).filter(key__in=keys).delete()[0] if keys else 0


def living(key: str, now: datetime) -> QuerySet[StoreEntry]:
    """Return the row of a key that has not expired, if there is one."""
    return rows(StoreEntry).filter(Q(expires_at__isnull=True) | Q(expires_at__gt=now), key=key)
