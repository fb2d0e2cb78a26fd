"""The one writer of ``status`` besides a claim: a row moves if status, delivery and worker are as read.

An insert writes the first status, and ``store/claims.py`` writes ``running``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple

from django.db.models import F
from django.db.transaction import set_rollback

from django_ayework.models import InputRevision, Work
from django_ayework.rules.causes import fingerprint
from django_ayework.rules.controls import FairnessKey
from django_ayework.rules.states import UNHELD, Status, Transition
from django_ayework.store.database import (
    alias,
    atomic,
    clock,
    connection,
    dialect,
    fetch,
    in_own_transaction,
    own_transaction,
    rows,
)
from django_ayework.store.dialects import array_text
from django_ayework.store.lanes import turns_of
from django_ayework.store.leases import lock_held
from django_ayework.store.many_rows import (
    Update,
    move,
    parts_of,
    update_by_column,
    update_of,
    update_rows,
    write,
)
from django_ayework.store.rows import WorkRow


class Succeeded(NamedTuple):
    """The success of a work that its worker holds at this delivery; ``result`` is encoded.

    ``founded`` are the ids of a group and a chain that the work founds, by column.
    """

    id: str
    delivery: int
    result: str | None
    founded: Mapping[str, str] = {}


def apply(transitions: Sequence[Transition]) -> set[str]:
    """Write every transition whose row is still where it was read; return the ids that moved.

    Only for those may follow-ups be carried out: the rows that moved decide who won.
    """
    alike: dict[Any, list[Transition]] = defaultdict(list)
    for transition in sorted(in_turn(transitions), key=attrgetter("id")):
        alike[transition.leaves, transition.renews, transition.worker].append(transition)
    moved: set[str] = set()
    for (leaves, renews, worker), group in alike.items():
        update = update_of({t.id: changes_of(t, renews) for t in group})
        held = {"delivery": [t.delivery for t in group]}
        moved |= moved_by(replace(update, required=held), Held(leaves, worker))
    return moved


def in_turn(transitions: Sequence[Transition]) -> Sequence[Transition]:
    """Add the sort keys of their turns to transitions that put works back among those that take turns."""
    keys = {transition.id: key for transition in transitions if (key := transition.fairness_key)}
    if not keys:
        return transitions
    turns = turns_of(keys, clock.now())
    return [
        replace(transition, sort_key=turns[transition.id], renews=(*transition.renews, "sort_key"))
        if transition.fairness_key
        else transition
        for transition in transitions
    ]


def succeed(works: Sequence[Succeeded], worker: str | None, now: datetime) -> set[str]:
    """Let works that this worker runs become successful; return the ids that moved, as :func:`apply` does.

    One statement writes all works that start no group and no chain: only their results differ.
    """
    shared = {
        "status": str(Status.SUCCESS),
        "reason": "",
        "error": "",
        "ended_at": now,
        "completed_by": worker,
        **UNHELD,
    }
    alike: dict[tuple[str, ...], list[Succeeded]] = defaultdict(list)
    for work in sorted(works, key=attrgetter("id")):
        alike[tuple(work.founded)].append(work)
    moved: set[str] = set()
    for founded, group in alike.items():
        varying: dict[str, list[str | None]] = {name: [w.founded[name] for w in group] for name in founded}
        varying["result"] = [work.result for work in group]
        held = {"delivery": [work.delivery for work in group]}
        update = Update([work.id for work in group], varying, shared, required=held)
        moved |= moved_by(update, Held(frozenset({Status.RUNNING}), worker))
    return moved


class Held(NamedTuple):
    """The state that a row must be in to move: one of the statuses, and the worker (None: any, or none)."""

    statuses: frozenset[Status]
    worker: str | None

    @property
    def condition(self) -> tuple[str, list[str]]:
        """The same in SQL, and its parameters."""
        statuses = [str(status) for status in self.statuses]
        sql = f"w.status IN ({', '.join(['%s'] * len(statuses))})"
        if self.worker is None:
            return sql, statuses
        return f"{sql} AND w.worker = %s", [*statuses, self.worker]


def moved_by(update: Update, held: Held) -> set[str]:
    """Write the rows that are in this state and have the required values; return their ids.

    The statement itself is the fence. The keys are in id order, and the statement locks the rows in the order
    of the keys: transactions of callers that lock several running works, such as a deletion, do so too. If
    some of several rows did not move, and the database cannot say which, the statement is rolled back.
    """
    database, moved = dialect(), set[str]()
    for part in parts_of(update, database):
        tells_moved = database.has_arrays or len(part.keys) == 1
        with nullcontext() if tells_moved else atomic():
            found = move(Work, part, database, *held.condition)
            if found is None:
                set_rollback(True, using=alias())
        moved |= move_under_locks(part, held) if found is None else found
    return moved


def move_under_locks(update: Update, held: Held) -> set[str]:
    """Lock the rows in id order, and write those that are still as they were read."""
    locked = rows(Work).select_for_update().filter(id__in=update.keys).order_by("id")
    standing = {
        id: delivery
        for id, delivery, status, worker in locked.values_list("id", "delivery", "status", "worker")
        if status in held.statuses and held.worker in (None, worker)
    }
    pairs = enumerate(zip(update.keys, update.required["delivery"], strict=True))
    still = update.part([place for place, (id, delivery) in pairs if standing.get(id) == delivery])
    write(Work, still)
    return set(still.keys)


def changes_of(transition: Transition, renews: Sequence[str]) -> dict[str, Any]:
    """Return the columns that a transition writes."""
    renewed = {name: getattr(transition, name) for name in renews}
    cause = fingerprint(transition.error) if transition.status is Status.DEAD else ""
    return {**transition.written, **renewed, "cause": cause}


# Releasing: claimed works go back unharmed, their attempt given back.


@own_transaction
def release(
    deliveries: Mapping[str, int],
    worker: str,
    run_at: datetime | None = None,
    error: str | None = None,
    skip_locked: bool = False,
) -> set[str]:
    """Give works back that this worker holds at these deliveries: pending, or scheduled for ``run_at``.

    ``error``, if given, is what they show meanwhile. ``skip_locked`` passes over rows that other
    transactions have locked, instead of waiting for them.

    Return the ids of those released; works that others took meanwhile are left alone.
    """
    changes: dict[str, Any] = {"status": Status.PENDING}
    if run_at is not None:
        changes = {"status": Status.SCHEDULED, "run_at": run_at}
    if error is not None:
        changes["error"] = error
    ids = lock_held(deliveries, worker, skip_locked)
    rows(Work).filter(id__in=ids).update(attempt=F("attempt") - 1, **UNHELD, **changes)
    return set(ids)


# Beginning: a last attempt is noted before its handler is called.

BEGIN = f"""
UPDATE {Work._meta.db_table} SET begun_delivery = delivery WHERE id = ANY(ARRAY(
    SELECT id FROM {Work._meta.db_table}
    WHERE id = ANY(%s::text[]) AND (id, delivery) IN (SELECT * FROM unnest(%s::text[], %s::int[]))
    AND status = 'running' AND worker = %s ORDER BY id FOR UPDATE SKIP LOCKED
)) RETURNING id
"""


def begin(deliveries: Mapping[str, int], worker: str | None) -> set[str]:
    """Note that works begin which this worker holds at these deliveries; return their ids.

    Rows that other transactions have locked are skipped.
    """
    ids = sorted(deliveries)
    numbers = [deliveries[id] for id in ids]
    if dialect().has_arrays:
        texts = array_text(ids)
        found = fetch(BEGIN, (texts, texts, array_text(numbers), worker), often=True)
        return {id for [id] in found}
    if not connection().features.has_select_for_update:  # SQLite has one lock, and two statements are slower
        update = Update(ids, {"begun_delivery": numbers}, required={"delivery": numbers})
        return in_own_transaction(moved_by, update, Held(frozenset({Status.RUNNING}), worker))
    return in_own_transaction(begin_under_locks, deliveries, worker)


def begin_under_locks(deliveries: Mapping[str, int], worker: str | None) -> set[str]:
    """Do the same in two statements."""
    ids = lock_held(deliveries, worker, skip_locked=True)
    rows(Work).filter(id__in=ids).update(begun_delivery=F("delivery"))
    return set(ids)


# Renewing: a work that waits is given a newer input, priority and start.


def renew(waiting: Sequence[tuple[WorkRow, WorkRow]]) -> None:
    """Copy input, priority, start and deadline from the second row of each pair to the first.

    The caller has locked them. The work becomes pending or scheduled, as the new start says. Without the new
    deadline, a new input would be lost with a work that is about to expire.
    """
    names = ("status", "input", "priority", "run_at", "deadline")
    update_rows(Work, {old.id: {name: getattr(new, name) for name in names} for old, new in waiting})


# Relocating: a work that waits goes to another queue, or to another place in its queue.


def relocate(works: Sequence[tuple[WorkRow, WorkRow]], now: datetime) -> None:
    """Write the queue and the priority of the second row of each pair on the first, which the caller locked.

    A pending work that takes turns gets the next turn of where it goes.
    """
    moved = [new for old, new in works if (old.queue, old.priority) != (new.queue, new.priority)]
    keys = {new.id: key for new in moved if new.status == Status.PENDING and (key := new.fairness_key)}
    turns = turns_of(keys, now)
    update_rows(
        Work,
        {
            new.id: {
                "queue": new.queue,
                "priority": new.priority,
                "sort_key": turns.get(new.id, new.sort_key),
            }
            for new in moved
        },
    )


# Scheduled works whose moment has come become pending, so that claiming never walks over others.


#: The columns that tell whether a work takes turns, and where.
COLUMNS = ("id", *FairnessKey._fields, "sort_key", "unit")


def make_pending(now: datetime, limit: int) -> list[tuple[str, str, str]]:
    """Make up to ``limit`` due works pending, the longest due first; return their ids, queues and types."""
    with atomic():
        due = rows(Work).filter(status=Status.SCHEDULED, run_at__lte=now).order_by("run_at")
        found = list(due.select_for_update(skip_locked=True).values_list(*COLUMNS)[:limit])
        keys = {
            id: FairnessKey(*key)
            for id, *key, sort_key, unit in found
            if key[-1] and sort_key not in ("", unit)
        }
        ids = [id for id, *_ in found if id not in keys]
        if ids:
            rows(Work).filter(id__in=ids).update(status=Status.PENDING)
        if keys:  # each has its turn behind those that wait
            turns = list(turns_of(keys, now).values())
            write(Work, update_by_column(list(keys), {"sort_key": turns}, {"status": str(Status.PENDING)}))
        return [(id, queue, type) for id, queue, type, *_ in found]


# Small writes on a work that do not touch its status.


def replace_input(work: WorkRow, input: str, now: datetime, by: str) -> None:
    """Replace the stored input of a work whose row the caller has locked, and keep the old one.

    ``by`` is the name of the user who has edited it, or empty.
    """
    rows(InputRevision).create(work_id=work.id, input=work.input, replaced_at=now, replaced_by=by[:150])
    rows(Work).filter(id=work.id).update(input=input)
