"""Staging: scheduled works whose moment has come become pending, so that claiming never walks over others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from django_ayework.models import Work
from django_ayework.rules.states import Status
from django_ayework.rules.turns import Place
from django_ayework.store.bulk import update_by_column, write
from django_ayework.store.database import atomic, fetch, in_own_transaction, is_postgresql, rows
from django_ayework.store.stand_ins import on_timeline
from django_ayework.store.turns import turns_of

#: Works that take turns are told, to be staged after it.
STAGE = """
WITH due AS MATERIALIZED (
    SELECT id, fairness > '' AND sort_key > '' AND sort_key IS DISTINCT FROM unit AS in_turn
    FROM django_ayework_work
    WHERE status = 'scheduled' AND run_at <= %s
    ORDER BY run_at
    LIMIT %s
    FOR UPDATE SKIP LOCKED
), staged AS (
    UPDATE django_ayework_work
    SET status = 'pending'
    WHERE id = ANY(ARRAY(SELECT id FROM due WHERE NOT in_turn))
    RETURNING id
)
SELECT id, FALSE FROM staged UNION ALL SELECT id, TRUE FROM due WHERE in_turn
"""


#: What tells whether a work takes turns, and where.
COLUMNS = ("id", *Place._fields, "sort_key", "unit")


def stage(now: datetime, limit: int) -> int:
    """Make up to ``limit`` due works pending, the longest due first; return how many."""
    if is_postgresql():
        found = fetch(STAGE, (now, limit))
        in_turn = [id for id, is_in_turn in found if is_in_turn]
        if in_turn:
            in_own_transaction(partial(stage_in_turn, in_turn, now))
        return len(found)
    with atomic():
        scheduled = on_timeline(rows(Work), Status.SCHEDULED)
        due = scheduled.filter(moment__lte=now).order_by("moment")
        found = list(due.select_for_update(skip_locked=True).values_list(*COLUMNS)[:limit])
        places = places_of(found)
        ids = [id for id, *_ in found if id not in places]
        if ids:
            rows(Work).filter(id__in=ids).update(status=Status.PENDING)
        give_turns(places, now)
        return len(found)


def stage_in_turn(ids: Sequence[str], now: datetime) -> None:
    """Make those of some works pending that are still scheduled; each has its turn behind those that wait."""
    scheduled = rows(Work).filter(id__in=ids, status=Status.SCHEDULED).order_by("run_at")
    give_turns(places_of(scheduled.select_for_update(skip_locked=True).values_list(*COLUMNS)), now)


def places_of(works: Iterable[tuple[Any, ...]]) -> dict[str, Place]:
    """Return where those of some works take turns that do, by id."""
    return {id: Place(*place) for id, *place, key, unit in works if place[-1] and key not in ("", unit)}


def give_turns(places: Mapping[str, Place], now: datetime) -> None:
    """Make works pending that take turns, and that this transaction has locked."""
    if places:
        turns = turns_of(list(places.values()), now)
        write(Work, update_by_column(list(places), {"sort_key": turns}, {"status": str(Status.PENDING)}))
