"""Pending and scheduled works."""

from __future__ import annotations

from datetime import datetime, timedelta

from django_ayework.conf import get_settings
from django_ayework.flow.explain.workers import live_workers
from django_ayework.flow.options import decode_options
from django_ayework.rules.explaining.explanation import Reason
from django_ayework.rules.explaining.waiting import Past, bound, history, pending, scheduled
from django_ayework.store.ahead import works_ahead
from django_ayework.store.attempts import last_outcome
from django_ayework.store.rows import WorkRow

#: Works ahead are counted up to this many.
MOST_AHEAD = 1000


def why_pending(row: WorkRow, now: datetime) -> list[Reason]:
    """Return why a due work is not taken."""
    ahead = works_ahead(row.id, row.queue, MOST_AHEAD)
    poll = timedelta(seconds=get_settings().poll_interval)
    reasons = pending(row.queue, live_workers(now), ahead, MOST_AHEAD, poll)
    return [*reasons, *history(past_of(row), now), *bound(row.deadline, now, "start")]


def why_scheduled(row: WorkRow, now: datetime) -> list[Reason]:
    """Return what moment a work waits for, and why."""
    workers = live_workers(now) if row.run_at <= now else None
    reasons = scheduled(row.run_at, now, row.queue, workers)
    return [*reasons, *history(past_of(row), now), *bound(row.deadline, now, "start")]


def past_of(row: WorkRow) -> Past:
    """Return what the work has behind it."""
    return Past(
        type=row.type,
        attempt=row.attempt,
        attempts=decode_options(row.options).retry.attempts,
        error=row.error,
        outcome=last_outcome(row.id, row.attempt),
        run_at=row.run_at,
        grace=timedelta(seconds=get_settings().unknown_type_grace),
    )
