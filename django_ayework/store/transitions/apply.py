"""Carrying out transitions: compare-and-set on the status left and on the delivery held."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from django_ayework.models import Work
from django_ayework.rules.states import Status
from django_ayework.rules.transitions import Transition
from django_ayework.store.bulk import (
    Condition,
    Update,
    count_moved,
    part_of,
    parts_of,
    tells_moved,
    update_joined,
    update_of,
    write,
)
from django_ayework.store.database import SET, atomic, chunked, rows

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
    for transition in transitions:
        alike[transition.leaves, transition.renews].append(transition)
    moved: set[str] = set()
    for (leaves, renews), group in alike.items():
        for some in chunked(group, SET):
            update = update_of({t.id: changes_of(t, renews) for t in some})
            held = {"delivery": [t.delivery for t in some]}
            moved |= moved_by(replace(update, required=held), leaves)
    return moved


def succeed(works: Sequence[Won], completed_by: str | None, now: datetime) -> set[str]:
    """Let works that run become successful; return the ids that moved, as :func:`apply` does.

    It is what most transitions are: three columns differ, and everything else is the same for all of them.
    """
    shared = {
        "status": str(Status.SUCCESS),
        "reason": "",
        "error": "",
        "ended_at": now,
        "completed_by": completed_by,
        **UNHELD,
    }
    moved: set[str] = set()
    for some in chunked(works, SET):
        ids, deliveries, results = zip(*some, strict=True)
        update = Update(ids, {"result": results}, shared, required={"delivery": deliveries})
        moved |= moved_by(update, frozenset({Status.RUNNING}))
    return moved


def moved_by(update: Update, leaves: frozenset[Status]) -> set[str]:
    """Write works that have one of these statuses, and what the update requires; return the ids of those.

    The statement itself is the fence. No order of locks is needed: everybody else who locks several running
    works skips locked ones. Where the values are looked up one by one it costs nothing, and is kept.
    """
    statuses = [str(status) for status in leaves]
    condition = Condition(f"AND w.status IN ({', '.join(['%s'] * len(statuses))})", statuses)
    if tells_moved() or len(update.keys) == 1:
        return update_joined(Work, update, condition)
    moved: set[str] = set()
    in_order = sorted(range(len(update.keys)), key=update.keys.__getitem__)
    for part in parts_of(part_of(update, in_order)):
        moved |= set(part.keys) if all_move(part, condition) else move_under_locks(part, leaves)
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


def move_under_locks(update: Update, leaves: frozenset[Status]) -> set[str]:
    """Lock the rows in id order, see which still stand where they were read, write those."""
    locked = rows(Work).select_for_update().filter(id__in=update.keys).order_by("id")
    standing = {
        id: delivery
        for id, status, delivery in locked.values_list("id", "status", "delivery")
        if status in leaves
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
