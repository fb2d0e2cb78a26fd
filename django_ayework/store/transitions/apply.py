"""Carrying out transitions: compare-and-set on the status left and on the delivery held."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from django_ayework.models import Work
from django_ayework.rules.states import Status
from django_ayework.rules.transitions import Transition
from django_ayework.store.bulk import update_by_cases, update_from_arrays
from django_ayework.store.database import chunked, is_postgresql, rows


def apply(transitions: Sequence[Transition]) -> set[str]:
    """Write every transition whose row is still where it was read; return the ids that moved.

    Only for those may follow-ups be carried out: the rows that moved decide who won.
    """
    moved: set[str] = set()
    for some in chunked(transitions):
        moved |= apply_set_based(some) if is_postgresql() else apply_under_locks(some)
    return moved


def apply_set_based(transitions: Sequence[Transition]) -> set[str]:
    """One UPDATE per set of statuses left; the statement itself is the fence.

    No order of locks is needed: everybody else who locks several running works skips locked ones.
    """
    moved: set[str] = set()
    by_leaves: dict[frozenset[Status], list[Transition]] = defaultdict(list)
    for transition in transitions:
        by_leaves[transition.leaves].append(transition)
    for leaves, group in by_leaves.items():
        changes = {t.id: {**changes_of(t), "delivery": t.delivery} for t in group}
        fence = "AND w.delivery = v.delivery AND w.status = ANY(%s)"
        moved |= update_from_arrays(Work, changes, fence, [[str(status) for status in leaves]])
    return moved


def apply_under_locks(transitions: Sequence[Transition]) -> set[str]:
    """Lock the rows in id order, see which still stand where they were read, write those."""
    ids = [transition.id for transition in transitions]
    locked = rows(Work).select_for_update().filter(id__in=ids).order_by("id")
    standing = {
        id: (status, delivery) for id, status, delivery in locked.values_list("id", "status", "delivery")
    }
    winners = [t for t in transitions if stands(t, standing.get(t.id))]
    return update_by_cases(Work, {t.id: changes_of(t) for t in winners})


def stands(transition: Transition, row: tuple[str, int] | None) -> bool:
    """Tell whether the row is where the transition expects it."""
    return row is not None and row[0] in transition.leaves and row[1] == transition.delivery


def changes_of(transition: Transition) -> dict[str, Any]:
    """Return the columns a transition writes; whatever it becomes, no worker holds it any more."""
    return {
        "status": str(transition.status),
        "attempt": transition.attempt,
        "run_at": transition.run_at,
        "deadline": transition.deadline,
        "group_id": transition.group_id,
        "reason": str(transition.reason),
        "error": transition.error,
        "result": transition.result,
        "ended_at": transition.ended_at,
        "completed_by": transition.completed_by,
        "worker": None,
        "leased_until": None,
    }
