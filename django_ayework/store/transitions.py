"""The one writer of ``status``: compare-and-set on the status left, the delivery and the worker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

from django.db.models import F

from django_ayework.models import Work
from django_ayework.rules.controls import Place
from django_ayework.rules.states import Status, Transition
from django_ayework.store.bulk import (
    Condition,
    Update,
    count_moved,
    part_of,
    parts_of,
    tells_moved,
    update_by_column,
    update_joined,
    update_of,
    update_rows,
    write,
)
from django_ayework.store.clock import clock
from django_ayework.store.database import SET, atomic, chunked, dialect, fetch, in_own_transaction, rows
from django_ayework.store.fairness import turns_of
from django_ayework.store.rows import WorkRow

# --- apply ---
# Carrying out transitions: compare-and-set on the status left, the delivery and the worker.

#: What is true of a work that no worker holds, whatever it became.
UNHELD = {"worker": None, "leased_until": None}


class Won(NamedTuple):
    """The success of a work that its worker holds at this delivery; ``result`` is encoded."""

    id: str
    delivery: int
    result: str | None


def apply(transitions: Sequence[Transition]) -> set[str]:
    """Write every transition whose row is still where it was read; return the ids that moved.

    Only for those may follow-ups be carried out: the rows that moved decide who won.
    """
    alike: dict[Any, list[Transition]] = defaultdict(list)
    for transition in sorted(in_turn(transitions), key=attrgetter("id")):
        alike[transition.leaves, transition.renews, transition.worker].append(transition)
    moved: set[str] = set()
    for (leaves, renews, worker), group in alike.items():
        for some in chunked(group, SET):
            update = update_of({t.id: changes_of(t, renews) for t in some})
            held = {"delivery": [t.delivery for t in some]}
            moved |= moved_by(replace(update, required=held), Held(leaves, worker))
    return moved


def in_turn(transitions: Sequence[Transition]) -> Sequence[Transition]:
    """Return transitions with the turns of works that go back to where they take turns."""
    places = {transition.id: transition.place for transition in transitions if transition.place is not None}
    if not places:
        return transitions
    turns = dict(zip(places, turns_of(list(places.values()), clock.now()), strict=True))
    return [
        replace(transition, sort_key=turns[transition.id], renews=(*transition.renews, "sort_key"))
        if transition.place
        else transition
        for transition in transitions
    ]


def succeed(works: Sequence[Won], worker: str | None, now: datetime) -> set[str]:
    """Let works that this worker runs become successful; return the ids that moved, as :func:`apply` does.

    It is what most transitions are: three columns differ, and everything else is the same for all of them.
    """
    shared = {
        "status": str(Status.SUCCESS),
        "reason": "",
        "error": "",
        "ended_at": now,
        "completed_by": worker,
        **UNHELD,
    }
    moved: set[str] = set()
    for some in chunked(sorted(works, key=attrgetter("id")), SET):
        ids, deliveries, results = zip(*some, strict=True)
        update = Update(ids, {"result": results}, shared, required={"delivery": deliveries})
        moved |= moved_by(update, Held(frozenset({Status.RUNNING}), worker))
    return moved


class Held(NamedTuple):
    """Where works are that move: their statuses, and the worker that holds them (None: any, or none)."""

    statuses: frozenset[Status]
    worker: str | None

    def covers(self, status: str, worker: str | None) -> bool:
        """Tell whether a row with these values is there."""
        return status in self.statuses and self.worker in (None, worker)

    @property
    def condition(self) -> Condition:
        """The same in SQL."""
        statuses = [str(status) for status in self.statuses]
        sql = f"w.status IN ({', '.join(['%s'] * len(statuses))})"
        if self.worker is None:
            return Condition(sql, statuses)
        return Condition(f"{sql} AND w.worker = %s", [*statuses, self.worker])


def moved_by(update: Update, held: Held) -> set[str]:
    """Write works that are held so, and are what the update requires; return the ids of those.

    The statement itself is the fence. The keys are in id order, and the statement locks the rows in the order
    of the keys: transactions of callers that lock several running works, such as a deletion, do so too.
    """
    condition = held.condition
    if tells_moved() or len(update.keys) == 1:
        return update_joined(Work, update, condition)
    moved: set[str] = set()
    for part in parts_of(update):
        moved |= set(part.keys) if all_move(part, condition) else move_under_locks(part, held)
    return moved


class SomeStay(Exception):
    """Not all works of an update are where they were read; rolls the savepoint back."""


def all_move(update: Update, condition: Condition) -> bool:
    """Write works in a statement that tells how many have moved; undo it unless all of them have."""
    with suppress(SomeStay), atomic():
        if count_moved(Work, update, condition) < len(update.keys):
            raise SomeStay
        return True
    return False


def move_under_locks(update: Update, held: Held) -> set[str]:
    """Lock the rows in id order, see which still stand where they were read, write those."""
    locked = rows(Work).select_for_update().filter(id__in=update.keys).order_by("id")
    standing = {
        id: delivery
        for id, delivery, status, worker in locked.values_list("id", "delivery", "status", "worker")
        if held.covers(status, worker)
    }
    pairs = enumerate(zip(update.keys, update.required["delivery"], strict=True))
    still = part_of(update, [place for place, (id, delivery) in pairs if standing.get(id) == delivery])
    write(Work, still)
    return set(still.keys)


def changes_of(transition: Transition, renews: Sequence[str]) -> dict[str, Any]:
    """Return the columns a transition writes; whatever it becomes, no worker holds it any more."""
    return {
        "status": str(transition.status),
        **{name: getattr(transition, name) for name in renews},
        "reason": str(transition.reason),
        "error": transition.error,
        "result": transition.result,
        "ended_at": transition.ended_at,
        "completed_by": transition.completed_by,
        **UNHELD,
    }


# --- release ---
# Releasing: claimed works go back unharmed, their attempt given back.


def release(
    deliveries: Mapping[str, int], worker: str, run_at: datetime | None = None, error: str | None = None
) -> int:
    """Give works back that this worker holds at these deliveries: pending, or scheduled for ``run_at``.

    ``error``, if given, is what they show meanwhile.

    Return how many; those that others took meanwhile are left alone.
    """
    changes: dict[str, Any] = {"status": Status.PENDING}
    if run_at is not None:
        changes = {"status": Status.SCHEDULED, "run_at": run_at}
    if error is not None:
        changes["error"] = error
    return in_own_transaction(partial(release_here, deliveries, worker, changes))


def release_here(deliveries: Mapping[str, int], worker: str, changes: Mapping[str, Any]) -> int:
    """One UPDATE for all works at one delivery."""
    released = 0
    held = rows(Work).filter(worker=worker, status=Status.RUNNING)
    for delivery in set(deliveries.values()):
        ids = [id for id, held_at in deliveries.items() if held_at == delivery]
        released += held.filter(id__in=ids, delivery=delivery).update(
            attempt=F("attempt") - 1, worker=None, leased_until=None, **changes
        )
    return released


# --- renew ---
# Renewing: a work that waits is given a newer input, priority and start.


def renew(waiting: Sequence[tuple[WorkRow, WorkRow]]) -> None:
    """Write what the second row of each pair brings on the first, which the caller has locked.

    Pending or scheduled, as the new start says; what is blocked stays blocked.
    """
    update_rows(Work, {old.id: renewal_changes(old, new) for old, new in waiting})


def renewal_changes(old: WorkRow, new: WorkRow) -> dict[str, Any]:
    """Return the columns to write."""
    blocked = old.status == Status.BLOCKED
    return {
        "status": old.status if blocked else new.status,
        "input": new.input,
        "priority": new.priority,
        "run_at": new.run_at,
    }


# --- stage ---
# Staging: scheduled works whose moment has come become pending, so that claiming never walks over others.

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
    if dialect().has_arrays:
        found = fetch(STAGE, (now, limit))
        in_turn = [id for id, is_in_turn in found if is_in_turn]
        if in_turn:
            in_own_transaction(partial(stage_in_turn, in_turn, now))
        return len(found)
    with atomic():
        due = rows(Work).filter(status=Status.SCHEDULED, run_at__lte=now).order_by("run_at")
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


# --- works ---
# Small writes on a work that do not touch its status.


def replace_input(id: str, input: str) -> None:
    """Replace the stored input of a work whose row the caller has locked."""
    rows(Work).filter(id=id).update(input=input)
