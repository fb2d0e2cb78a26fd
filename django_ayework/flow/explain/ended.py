"""Ended works."""

from __future__ import annotations

from datetime import datetime

from django_ayework.define.registry import registry
from django_ayework.define.requests import GATE_TYPE
from django_ayework.flow.explain.workers import find_worker
from django_ayework.rules.explaining.ended import Ending, over
from django_ayework.rules.explaining.explanation import Reason
from django_ayework.rules.states import Reason as Cause
from django_ayework.rules.states import Status
from django_ayework.rules.unknown import if_renamed
from django_ayework.store.rows import WorkRow, statuses_of
from django_ayework.store.waiters import missed_by, read_waiters

#: Watched works that are named.
NAMED = 5


def why_ended(row: WorkRow, now: datetime) -> list[Reason]:
    """Return how a work ended, and what can be done about it."""
    members, missed = missed_members(row)
    ending = Ending(
        status=Status(row.status),
        reason=row.reason,
        type=row.type,
        is_gate=row.type == GATE_TYPE,
        ended_at=row.ended_at,
        by=ended_by(row),
        error=row.error,
        attempt=row.attempt,
        members=members,
        missed=missed,
        if_renamed=if_renamed(row.type, registry.names()) if row.reason == Cause.UNKNOWN_TYPE else "",
    )
    return over(ending, now)


def ended_by(row: WorkRow) -> str | None:
    """Return the worker that ended it, by its address while it is known; None when none did."""
    if row.completed_by is None:
        return None
    worker = find_worker(row.completed_by)
    return row.completed_by if worker is None else str(worker)


def missed_members(row: WorkRow) -> tuple[list[tuple[str, str, str | None]], int]:
    """Return the first works that a gate missed, and how many those are."""
    waiter = read_waiters([row.id]).get(row.id) if row.reason == Cause.UNSATISFIABLE else None
    if waiter is None:
        return [], 0
    missed = missed_by(row.id, NAMED)
    statuses = statuses_of(id for id, _ in missed)
    return [(id, outcome, statuses.get(id)) for id, outcome in missed], waiter.missed
