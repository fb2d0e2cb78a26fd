"""Counting what is live. Live rows are few beside those retained, and have indexes of their own."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import NamedTuple

from django.db.models import Count, Min

from django_ayework.models import Work, WorkerProcess
from django_ayework.rules.states import LIVE, Status
from django_ayework.store.database import rows
from django_ayework.store.stand_ins import ended_as, on_timeline, with_status


class Depth(NamedTuple):
    """How many works of a queue stand at a status, and from when on the oldest is due."""

    queue: str
    status: str
    works: int
    oldest: datetime | None


def live_depths(most_scheduled: int) -> list[Depth]:
    """Count live works by queue and status, one status at a time: each has an index of its own.

    Works of the far future may be many, so of those that are scheduled the first ones are counted.
    """
    statuses = sorted(str(status) for status in LIVE if status is not Status.SCHEDULED)
    depths = [depth for status in statuses for depth in depths_of(status)]
    return [*depths, *scheduled_depths(most_scheduled)]


def scheduled_depths(limit: int) -> list[Depth]:
    """Count the scheduled works by queue, up to ``limit`` of them: those that are due first."""
    scheduled = on_timeline(rows(Work), Status.SCHEDULED).order_by("moment")
    first = list(scheduled.values_list("queue", "run_at")[:limit])
    oldest = dict(reversed(first))
    return [
        Depth(queue, Status.SCHEDULED, works, oldest[queue])
        for queue, works in sorted(Counter(queue for queue, _ in first).items())
    ]


def depths_of(status: str) -> list[Depth]:
    """Count the works of one live status by queue."""
    works = with_status(rows(Work), status).values_list("queue", "status").order_by("queue")
    return [Depth._make(row) for row in works.annotate(Count("id"), Min("run_at"))]


def lapsed_by_queue(now: datetime) -> dict[str, int]:
    """Count the running works whose lease has lapsed, by queue."""
    lapsed = on_timeline(rows(Work), Status.RUNNING).filter(moment__lt=now)
    return dict(lapsed.values_list("queue").order_by("queue").annotate(Count("id")))


def dead_letters(limit: int) -> int:
    """Count dead works, up to ``limit``."""
    return len(ended_as(rows(Work), Status.DEAD).values_list("id")[:limit])


def processes_seen_since(moment: datetime) -> list[WorkerProcess]:
    """Return the workers that were alive after this moment and have not stopped."""
    return list(rows(WorkerProcess).filter(seen_at__gte=moment, stopped_at=None).order_by("started_at"))
