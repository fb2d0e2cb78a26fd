"""Keys with an end: set, compared and deleted; locks on keys; and the works that have a key or a unit."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from django.db.models import F, Q, Window
from django.db.models.functions import RowNumber
from django.db.models.query import QuerySet

from django_ayework.models import StoreEntry, Work
from django_ayework.rules.identity import Scope
from django_ayework.rules.states import Status
from django_ayework.store.database import (
    CHUNK,
    atomic,
    chunked,
    clock,
    connection,
    delete_first,
    dialect,
    matching,
    rows,
    stored_moment,
)
from django_ayework.store.rows import COLUMNS, WorkRow, lock_rows


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
    return unexpired(key, now).exists()


def value_of(key: str, now: datetime) -> str | None:
    """Return what a key is set to, or None."""
    return unexpired(key, now).values_list("value", flat=True).first()


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
    matching = unexpired(key, now).filter(value=expected)
    return matching.update(value=value, expires_at=expires_at) == 1


def lock_value(key: str, now: datetime) -> str | None:
    """Return what a key is set to, and keep others from changing it until our transaction has ended."""
    return unexpired(key, now).select_for_update().values_list("value", flat=True).first()


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
        return delete_first(expired, limit)


def unexpired(key: str, now: datetime) -> QuerySet[StoreEntry]:
    """Return the row of a key that has not expired, if there is one."""
    return rows(StoreEntry).filter(Q(expires_at__isnull=True) | Q(expires_at__gt=now), key=key)


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


# Finding chains by their dedup key.


class Search(NamedTuple):
    """The conditions of a match besides its key; ``type`` is that of the chain's first work."""

    type: str
    scope: Scope
    since: datetime | None
    exclude: tuple[str, ...]


def newest_matches(search: Search, keys: Sequence[str]) -> dict[str, str]:
    """Return, by key, the id of the newest chain that matches."""
    newest = newest_live if search.scope == "incomplete" else newest_of_all
    return {key: id for some in chunked(keys) for key, id in newest(search, some).items()}


def newest_of_all(search: Search, keys: Sequence[str]) -> dict[str, str]:
    """Return the newest chains, ended ones too: they are as old as their first works."""
    newest_first = Window(
        RowNumber(), partition_by=F("dedup_key"), order_by=[F("queued_at").desc(), F("id").desc()]
    )
    firsts = rows(Work).filter(bearing(search, keys), chain_index=0).exclude(id__in=search.exclude)
    if search.since is not None:
        firsts = firsts.filter(queued_at__gte=search.since)
    matching = firsts.annotate(place=newest_first).filter(place=1)
    return {key: id for key, id in matching.values_list("dedup_key", "id") if key}


def newest_live(search: Search, keys: Sequence[str]) -> dict[str, str]:
    """Return the newest chains with a work that has not ended, in any of its steps.

    A work that waits past its deadline is left out: it ends without a run, and a request that is merged into
    it would be lost.
    """
    expired = Q(deadline__lte=clock.now()) & ~Q(status=Status.RUNNING)
    works = rows(Work).filter(~expired, bearing(search, keys), ended_at__isnull=True)
    columns = works.values_list("queued_at", "id", "chain_id", "dedup_key")
    firsts = rows(Work).filter(id__in={chain_id for _, _, chain_id, _ in columns if chain_id})
    begun = dict(firsts.values_list("id", "queued_at"))  # without those that were deleted
    chains = [(begun.get(chain or id, at), chain or id, key or "") for at, id, chain, key in columns]
    return {
        key: id
        for at, id, key in sorted(chains)
        if id not in search.exclude and (search.since is None or at >= search.since)
    }


def bearing(search: Search, keys: Sequence[str]) -> Q:
    """Return the condition that a work has one of these keys."""
    return Q(dedup_type=search.type, dedup_key__in=keys, dedup_key__isnull=False)


# Finding the live work of a unit.

Units = dict[tuple[str, str], WorkRow]


def find_live_units(pairs: Iterable[tuple[str, str]]) -> Units:
    """Read the live works of these types and units, by type and unit."""
    by_type: dict[str, list[str]] = defaultdict(list)
    for type, unit in pairs:
        by_type[type].append(unit)
    found: Units = {}
    for type, units in by_type.items():
        live = rows(Work).filter(type=type, ended_at__isnull=True).order_by("id")  # the newest of a unit last
        for row in map(WorkRow._make, matching(live, "unit", units, *COLUMNS)):
            found[type, row.unit or ""] = row
    return found


def lock_live_units(pairs: Iterable[tuple[str, str]]) -> Units:
    """Lock the live works of these types and units, whose keys the caller has locked.

    Works that ended meanwhile are left out.
    """
    found = find_live_units(pairs)
    locked = lock_rows([row.id for row in found.values()])
    return {
        pair: locked[row.id]
        for pair, row in found.items()
        if row.id in locked and locked[row.id].ended_at is None
    }
