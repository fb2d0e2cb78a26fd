"""How schedules stand, and what comes next."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from django_ayework.flow.schedules.timings import upcoming
from django_ayework.models import Schedule
from django_ayework.store.schedules import all_schedules

State = Literal["active", "failing", "paused", "ended", "not declared"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleOverview:
    """One schedule; ``when`` is its cron expression, its interval in seconds, or ``"function"``.

    ``next`` are its next occurrences as far as they are known, ``queued`` the firings that wait for the works
    of the one before.
    """

    name: str
    state: State
    when: str
    tz: str
    runs: str
    next: list[datetime]
    last_fired_at: datetime | None
    queued: int
    error: str


def schedules_overview(foreseen: int) -> list[ScheduleOverview]:
    """Return all schedules by name, each with so many of its next occurrences."""
    return [
        ScheduleOverview(
            name=row.name,
            state=state_of(row),
            when=when(row),
            tz=row.tz,
            runs=row.function,
            next=upcoming(row, foreseen),
            last_fired_at=row.last_fired_at,
            queued=row.queued,
            error=row.error,
        )
        for row in all_schedules()
    ]


def when(row: Schedule) -> str:
    """Return in a few words when a schedule fires."""
    if row.kind == "every":
        return f"every {row.every or 0:g} s"
    return row.cron if row.kind == "cron" else "function"


def state_of(row: Schedule) -> State:
    """Return whether a schedule fires, or what keeps it."""
    if not row.enabled:
        return "not declared"
    if row.paused:
        return "paused"
    if row.failures:
        return "failing"
    return "active" if row.due_at is not None else "ended"
