"""The explanation of a work, by its status."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from django.utils.timezone import localtime

from django_ayework.errors import WorkNotFound
from django_ayework.flow.explain.blocked import why_blocked
from django_ayework.flow.explain.ended import why_ended
from django_ayework.flow.explain.running import why_running
from django_ayework.flow.explain.waiting import why_pending, why_scheduled
from django_ayework.flow.twins import twinned
from django_ayework.rules.explaining.explanation import Explanation, Reason
from django_ayework.rules.states import Status
from django_ayework.store.clock import clock
from django_ayework.store.rows import WorkRow, find_row

BY_STATUS: dict[Status, Callable[[WorkRow, datetime], list[Reason]]] = {
    Status.PENDING: why_pending,
    Status.SCHEDULED: why_scheduled,
    Status.BLOCKED: why_blocked,
    Status.RUNNING: why_running,
    Status.SUCCESS: why_ended,
    Status.DEAD: why_ended,
    Status.CANCELLED: why_ended,
}


@twinned
def explain(id: str) -> Explanation:
    """Say why a work is not running. Nothing is locked: it tells how things stood at this moment.

    Raises WorkNotFound.
    """
    row = find_row(id)
    if row is None:
        raise WorkNotFound(
            f"no work has the id {id!r}: it was never queued, the transaction that queues it is not "
            "committed, or it has ended and was pruned.",
            id=id,
        )
    return explain_row(row)


def explain_row(row: WorkRow) -> Explanation:
    """Explain a work that was read. Moments are told in Django's current time zone."""
    clock.synchronise()
    status = Status(row.status)
    return Explanation(row.id, status, tuple(BY_STATUS[status](row, localtime(clock.now()))))
