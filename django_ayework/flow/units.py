"""Units: of each type there is one live work per unit.

Two that bring one unit must not both find it free. So each first locks the unit until its transaction ends,
all in one order, and looks for a live work only in a later statement, which sees what the other committed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from django_ayework.errors import NotRetryable
from django_ayework.flow.new_works import NewWork
from django_ayework.flow.unit_of_work import UnitOfWork
from django_ayework.rules.states import Status
from django_ayework.store import transitions
from django_ayework.store.identity import find_live_units, lock_live_units
from django_ayework.store.locks import lock_keys
from django_ayework.store.rows import WorkRow

logger = logging.getLogger("django_ayework")

#: Longer than any sensible transaction: pruning passes over a row that is locked, but need not meet one.
LOCKS_KEPT = timedelta(days=1)

#: A type and a unit of it.
Pair: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Placed:
    """The works to insert, and of the others, by id, which work has their unit."""

    fresh: Sequence[NewWork]
    there: Mapping[str, str]


def require_unit_fits(new_work: NewWork, on_commit: bool) -> None:
    """Raise TypeError where the caller would be promised an id that a live work of the unit makes void."""
    if new_work.row.unit is None:
        return
    if new_work.gate is not None:
        raise TypeError("a gate takes no unit=: give it to the works it is about.")
    if new_work.dedup is not None:
        raise TypeError(
            f"{new_work.row.type!r} has both unit= and dedup=, and each may find another work; "
            "give one of them."
        )
    if on_commit:
        raise TypeError(
            f"{new_work.row.type!r} has unit=, which does not go with on_commit=True: whether the unit has a "
            "work shows only after the commit. Use transaction.on_commit(lambda: enqueue(..., unit=...))."
        )


def place_units(unit_of_work: UnitOfWork, new_works: Sequence[NewWork]) -> Placed:
    """Find the live works of the births' units: a waiting one is given the new input, a running one is left.

    Of several births of one unit the first gives the id and the last the rest.
    """
    keyed = [new_work for new_work in new_works if new_work.row.unit is not None]
    if not keyed:
        return Placed(new_works, {})
    newest = {pair_of(new_work): new_work for new_work in keyed}
    live = locked(unit_of_work, newest)
    give_new_inputs(unit_of_work, live, newest)
    ids = {pair_of(new_work): new_work.row.id for new_work in reversed(keyed)}
    ids.update((pair, row.id) for pair, row in live.items())
    there = {
        new_work.row.id: ids[pair_of(new_work)]
        for new_work in keyed
        if pair_of(new_work) in live or ids[pair_of(new_work)] != new_work.row.id
    }
    fresh = [
        new_work if new_work.row.unit is None else under_id(newest[pair_of(new_work)], new_work.row.id)
        for new_work in new_works
        if new_work.row.id not in there
    ]
    return Placed(fresh, there)


def insert_outputs(unit_of_work: UnitOfWork) -> None:
    """Queue what the settled works have output, all at once: so the units are locked in one order."""
    if unit_of_work.outputs:
        new_works, unit_of_work.outputs = unit_of_work.outputs, []
        unit_of_work.insert(place_units(unit_of_work, new_works).fresh)


def pair_of(new_work: NewWork) -> Pair:
    """Return the type and unit of a birth that has one."""
    return new_work.row.type, new_work.row.unit or ""


def locked(unit_of_work: UnitOfWork, pairs: Mapping[Pair, NewWork]) -> dict[Pair, WorkRow]:
    """Lock units and return their live works, locked too."""
    lock_keys(map(key_of, pairs), unit_of_work.now + LOCKS_KEPT)
    return lock_live_units(sorted(pairs), {*unit_of_work.outcomes, *unit_of_work.chain_outcomes})


def key_of(pair: Pair) -> tuple[str, ...]:
    """Return what a unit's lock is called."""
    return "unit", *pair


def under_id(new_work: NewWork, id: str) -> NewWork:
    """Return a birth under another id."""
    return new_work._replace(row=new_work.row._replace(id=id))


def give_new_inputs(
    unit_of_work: UnitOfWork, live: Mapping[Pair, WorkRow], newest: Mapping[Pair, NewWork]
) -> None:
    """Let waiting works take over input, priority and start; running ones have begun with what they had."""
    waiting = {pair: row for pair, row in live.items() if row.status != Status.RUNNING}
    for (type, unit), row in live.items():
        if row.status == Status.RUNNING:
            logger.info("The unit %r of %s is left alone, for work %s runs it.", unit, type, row.id)
    newer = [(row, newest[pair].row) for pair, row in sorted(waiting.items())]
    transitions.renew(newer)
    for row, new in newer:
        if row.status != Status.BLOCKED:
            unit_of_work.effects.awaits_worker(row._replace(status=new.status, run_at=new.run_at))


def require_free_unit(unit_of_work: UnitOfWork, row: WorkRow) -> None:
    """Raise NotRetryable when the unit of an ended work has a live work, which would then be its twin."""
    if row.unit is None:
        return
    pair = (row.type, row.unit)
    lock_keys([key_of(pair)], unit_of_work.now + LOCKS_KEPT)
    twin = find_live_units([pair]).get(pair)
    if twin is not None:
        raise NotRetryable(
            f"expected the unit {row.unit!r} of {row.type!r} to have no live work, but {twin.id} is "
            f"{twin.status}; it does what a retry of {row.id} would do.",
            id=row.id,
        )
