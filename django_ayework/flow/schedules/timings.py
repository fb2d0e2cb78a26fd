"""From a schedule's row to the moments it names."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from django_ayework.models import Schedule
from django_ayework.rules.durations import later
from django_ayework.rules.schedules.timing import Timing

#: Seconds between two looks at what waits for something else than the time.
TICK = 1.0


def timing_of(row: Schedule) -> Timing | None:
    """Return when a schedule has occurrences; None when a function says so, one at a time."""
    if row.kind == "next":
        return None
    return Timing(
        cron=row.cron,
        every=row.every if row.kind == "every" else None,
        anchor=row.next_at or row.last_at,
        tz=row.tz,
        dst="shift" if row.dst == "shift" else "skip",
        start=row.start_at,
        end=row.end_at,
    )


def beginning(row: Schedule, now: datetime) -> dict[str, Any]:
    """Return the columns of a schedule that is to go on from now: what lies behind is not made up for."""
    row.next_at = None
    timing = timing_of(row)
    if not row.enabled or row.paused:
        return {"next_at": None, "due_at": None}
    if timing is None:
        return {"next_at": None, "due_at": now}
    next_at = timing.first_after(max(now, row.last_at or now))
    return {"next_at": next_at, "due_at": due_moment(row, next_at, row.queued, now)}


def due_moment(row: Schedule, next_at: datetime | None, queued: int, now: datetime) -> datetime | None:
    """Return when to look at a schedule again: at its next occurrence, sooner if firings are queued."""
    planned = None
    if next_at is not None:
        planned = later(next_at, random.uniform(0.0, row.jitter) if row.jitter else 0.0)  # noqa: S311
    if not queued:
        return planned
    again = now + timedelta(seconds=TICK)
    return again if planned is None else min(again, planned)


def upcoming(row: Schedule, number: int) -> list[datetime]:
    """Return the next occurrences, as far as they are known."""
    timing = timing_of(row)
    if row.next_at is None or timing is None:
        return [] if row.next_at is None else [row.next_at]
    following = timing.between(row.next_at, datetime.max.replace(tzinfo=row.next_at.tzinfo))
    return [row.next_at, *islice(following, number - 1)]
