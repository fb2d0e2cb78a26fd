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
from django_ayework.flow.births import Birth
from django_ayework.flow.ledger import Ledger
from django_ayework.rules.states import Status
from django_ayework.store import transitions
from django_ayework.store.keys import lock_keys
from django_ayework.store.rows import WorkRow
from django_ayework.store.units import find_live_units, lock_live_units

logger = logging.getLogger("django_ayework")

#: Longer than any sensible transaction: pruning passes over a row that is locked, but need not meet one.
LOCKS_KEPT = timedelta(days=1)

#: A type and a unit of it.
Pair: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Placed:
    """The works to insert, and of the others, by id, which work has their unit."""

    fresh: Sequence[Birth]
    there: Mapping[str, str]


def require_unit_fits(birth: Birth, on_commit: bool) -> None:
    """Raise TypeError where the caller would be promised an id that a live work of the unit makes void."""
    if birth.row.unit is None:
        return
    if birth.gate is not None:
        raise TypeError("a gate takes no unit=: give it to the works it is about.")
    if birth.dedup is not None:
        raise TypeError(
            f"{birth.row.type!r} has both unit= and dedup=, and each may find another work; give one of them."
        )
    if on_commit:
        raise TypeError(
            f"{birth.row.type!r} has unit=, which does not go with on_commit=True: whether the unit has a "
            "work shows only after the commit. Use transaction.on_commit(lambda: enqueue(..., unit=...))."
        )


def place_units(ledger: Ledger, births: Sequence[Birth]) -> Placed:
    """Find the live works of the births' units: a waiting one is given the new input, a running one is left.

    Of several births of one unit the first gives the id and the last the rest.
    """
    keyed = [birth for birth in births if birth.row.unit is not None]
    if not keyed:
        return Placed(births, {})
    newest = {pair_of(birth): birth for birth in keyed}
    live = locked(ledger, newest)
    give_new_inputs(ledger, live, newest)
    ids = {pair_of(birth): birth.row.id for birth in reversed(keyed)}
    ids.update((pair, row.id) for pair, row in live.items())
    there = {
        birth.row.id: ids[pair_of(birth)]
        for birth in keyed
        if pair_of(birth) in live or ids[pair_of(birth)] != birth.row.id
    }
    fresh = [
        birth if birth.row.unit is None else under_id(newest[pair_of(birth)], birth.row.id)
        for birth in births
        if birth.row.id not in there
    ]
    return Placed(fresh, there)


def bear_outputs(ledger: Ledger) -> None:
    """Queue what the settled works have output, all at once: so the units are locked in one order."""
    if ledger.outputs:
        births, ledger.outputs = ledger.outputs, []
        ledger.bear(place_units(ledger, births).fresh)


def pair_of(birth: Birth) -> Pair:
    """Return the type and unit of a birth that has one."""
    return birth.row.type, birth.row.unit or ""


def locked(ledger: Ledger, pairs: Mapping[Pair, Birth]) -> dict[Pair, WorkRow]:
    """Lock units and return their live works, locked too."""
    lock_keys(map(key_of, pairs), ledger.now + LOCKS_KEPT)
    return lock_live_units(sorted(pairs), {*ledger.outcomes, *ledger.chain_outcomes})


def key_of(pair: Pair) -> tuple[str, ...]:
    """Return what a unit's lock is called."""
    return "unit", *pair


def under_id(birth: Birth, id: str) -> Birth:
    """Return a birth under another id."""
    return birth._replace(row=birth.row._replace(id=id))


def give_new_inputs(ledger: Ledger, live: Mapping[Pair, WorkRow], newest: Mapping[Pair, Birth]) -> None:
    """Let waiting works take over input, priority and start; running ones have begun with what they had."""
    waiting = {pair: row for pair, row in live.items() if row.status != Status.RUNNING}
    for (type, unit), row in live.items():
        if row.status == Status.RUNNING:
            logger.info("The unit %r of %s is left alone, for work %s runs it.", unit, type, row.id)
    newer = [(row, newest[pair].row) for pair, row in sorted(waiting.items())]
    transitions.renew(newer)
    for row, new in newer:
        if row.status != Status.BLOCKED:
            ledger.effects.awaits_worker(row._replace(status=new.status, run_at=new.run_at))


def require_free_unit(ledger: Ledger, row: WorkRow) -> None:
    """Raise NotRetryable when the unit of an ended work has a live work, which would then be its twin."""
    if row.unit is None:
        return
    pair = (row.type, row.unit)
    lock_keys([key_of(pair)], ledger.now + LOCKS_KEPT)
    twin = find_live_units([pair]).get(pair)
    if twin is not None:
        raise NotRetryable(
            f"expected the unit {row.unit!r} of {row.type!r} to have no live work, but {twin.id} is "
            f"{twin.status}; it does what a retry of {row.id} would do.",
            id=row.id,
        )
