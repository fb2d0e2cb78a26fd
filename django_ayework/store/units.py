"""Finding the live work of a unit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from django.db.models import QuerySet

from django_ayework.models import Work
from django_ayework.rules.states import Status
from django_ayework.store.database import chunked, rows
from django_ayework.store.edges import watchers_of
from django_ayework.store.rows import WorkRow, lock_rows, rows_of
from django_ayework.store.stand_ins import StandIn
from django_ayework.store.waiters import lock_waiters

Units = dict[tuple[str, str], WorkRow]


def find_live_units(pairs: Iterable[tuple[str, str]]) -> Units:
    """Read the live works of these types and units, by type and unit."""
    by_type: dict[str, list[str]] = defaultdict(list)
    for type, unit in pairs:
        by_type[type].append(unit)
    found: Units = {}
    for type, units in by_type.items():
        for some in chunked(units):
            found.update(((row.type, row.unit or ""), row) for row in rows_of(live(type, some)))
    return found


def live(type: str, units: Sequence[str]) -> QuerySet[Work]:
    """Return the works of a type that have not ended, of these units; the newest of a unit last."""
    works = rows(Work).filter(type=type, unit__in=units).alias(ended=StandIn("ended_at", "unit_ended_at"))
    return works.filter(ended__isnull=True).order_by("id")


def lock_live_units(pairs: Iterable[tuple[str, str]], ended: Collection[str]) -> Units:
    """Lock the live works of these types and units, whose keys the caller has locked.

    The order is that of a deletion: works that do not wait, waiters, works that wait. The waiters that watch
    what the transaction has ``ended`` are locked with them, in one statement, as it comes to those later.
    Works that ended meanwhile are left out.
    """
    found = find_live_units(pairs)
    if not found:
        return {}
    waiting = {row.id for row in found.values() if row.status == Status.BLOCKED}
    locked = lock_rows([row.id for row in found.values() if row.id not in waiting])
    if waiting:
        lock_waiters(waiting | watchers_of(ended) if ended else waiting)
        locked |= lock_rows(waiting)
    return {
        pair: locked[row.id]
        for pair, row in found.items()
        if row.id in locked and locked[row.id].ended_at is None
    }
