"""Pending and scheduled works."""

from __future__ import annotations

from datetime import datetime, timedelta

from django_ayework.conf import get_settings
from django_ayework.define.registry import registry
from django_ayework.flow.controls import current_controls
from django_ayework.flow.explain.workers import live_workers
from django_ayework.flow.options import decode_options
from django_ayework.rules.controls import Controls
from django_ayework.rules.explaining.control import limits, pauses
from django_ayework.rules.explaining.explanation import Code, Reason
from django_ayework.rules.explaining.waiting import Past, bound, history, pending, scheduled
from django_ayework.rules.unknown import if_renamed, is_parking
from django_ayework.store.ahead import works_ahead
from django_ayework.store.attempts import last_outcome
from django_ayework.store.controls import running_counts
from django_ayework.store.lanes import lanes_of
from django_ayework.store.rows import WorkRow

#: Works ahead are counted up to this many.
MOST_AHEAD = 1000


def why_pending(row: WorkRow, now: datetime) -> list[Reason]:
    """Return why a due work is not taken."""
    controls = current_controls()
    reasons = pauses(row.type, row.queue, controls) or why_not_taken(row, controls, now)
    return [*reasons, *history(past_of(row), now), *bound(row.deadline, now, "start")]


def why_not_taken(row: WorkRow, controls: Controls, now: datetime) -> list[Reason]:
    """Return whether anybody is there to take the work, what holds its type back, and what goes first."""
    types = [lane.type for lane in lanes_of([row.queue])]
    running = running_counts([row.type]) if controls.of(row.type).max_running else {}
    held = limits(row.type, row.queue, running.get(row.type, 0), types, controls)
    ranked = any(controls.of(type).is_ranked for type in types)
    ahead = works_ahead(row, [row.type] if ranked or row.sort_key else types, MOST_AHEAD)
    poll = timedelta(seconds=get_settings().poll_interval)
    reasons = pending(row.queue, live_workers(now), ahead, MOST_AHEAD, poll)
    return [*held, *(reason for reason in reasons if not held or reason.code is not Code.NEXT)]


def why_scheduled(row: WorkRow, now: datetime) -> list[Reason]:
    """Return what moment a work waits for, and why."""
    workers = live_workers(now) if row.run_at <= now else None
    paused = pauses(row.type, row.queue, current_controls())
    reasons = [*scheduled(row.run_at, now, row.queue, workers), *paused]
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
        if_renamed=if_renamed(row.type, registry.names()) if is_parking(row.error) else "",
    )
