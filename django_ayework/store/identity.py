"""Finding works by dedup key and by unit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from django.db.models import F, Q, Window
from django.db.models.functions import RowNumber

from django_ayework.models import Work
from django_ayework.rules.identity import Scope
from django_ayework.rules.states import Status
from django_ayework.store.database import chunked, clock, matching, rows
from django_ayework.store.rows import COLUMNS, WorkRow, lock_rows

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
    """Return the condition that a work bears one of these keys."""
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
