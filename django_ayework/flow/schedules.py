"""Schedules: their rows, kept in step with the code."""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import partial
from itertools import islice
from typing import Any, Literal

from django.conf import settings

from django_ayework.define.schedules import DeclaredSchedule, schedules
from django_ayework.models import Schedule
from django_ayework.rules.durations import later
from django_ayework.rules.schedules import INSTANT, Timing, zone_of
from django_ayework.store.clock import clock
from django_ayework.store.database import in_own_transaction
from django_ayework.store.schedules import (
    all_declared,
    all_schedules,
    change_schedule,
    disabled_names,
    insert_missing,
    lock_schedules,
)

# --- timings ---
# From a schedule's row to the moments it names.

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


# --- overview ---
# How schedules stand, and what comes next.

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


# --- sync ---
# Keeping the rows of schedules in step with what code declares.

logger = logging.getLogger("django_ayework")

#: A change of these makes a schedule begin anew; a change of the others only counts from now on.
WHEN = ("kind", "cron", "every", "tz", "dst", "start_at", "end_at")


def sync() -> None:
    """Add declared schedules that have no row, write what was changed, disable what is not declared.

    One statement when there is nothing to do. What is disabled keeps its row and its history, and goes on
    from then when it is declared again.
    """
    if differing(all_declared(schedules.names())):
        in_own_transaction(sync_here)


def differing(stored: dict[str, Schedule]) -> set[str]:
    """Return the names for which there is something to write."""
    changed = {
        declared.name
        for declared in schedules
        if declared.name not in stored or changes_of(declared, stored[declared.name])
    }
    return changed | {name for name, row in stored.items() if is_orphan(row)}


def is_orphan(row: Schedule) -> bool:
    """Tell whether a schedule is to be disabled: code had declared it, and does not any more."""
    return row.origin == "code" and row.enabled and schedules.find(row.name) is None


def sync_here() -> None:
    """Insert first, for there is nothing to lock before; then lock, compare again, and write.

    Processes that start at once insert the same rows, and the first insert counts; the locks are taken in
    the order of names, so that two of them cannot wait for each other.
    """
    now = clock.now()
    stored = all_declared(schedules.names())
    new = [declared for declared in schedules if declared.name not in stored]
    if new:
        insert_missing(new_row(declared, now) for declared in new)
        for declared in new:
            logger.info("Added the schedule %s, which runs %s.", declared.name, declared.function)
    for name, row in lock_schedules(differing(stored)).items():
        if is_orphan(row):
            row.enabled = False
            change_schedule(row.pk, {"enabled": False, **beginning(row, now)})
            logger.warning("Disabled the schedule %s: no code declares it any more.", name)
        elif (known := schedules.find(name)) is not None:
            write_changes(row, changes_of(known, row), now)


def restore() -> None:
    """Enable what this process declares and another one has disabled; one statement when there is nothing.

    An older release that starts once more during a deployment does not know what the new one declares.
    """
    missed = [name for name in disabled_names() if schedules.find(name) is not None]
    if missed:
        in_own_transaction(partial(restore_here, missed))


def restore_here(names: list[str]) -> None:
    """Lock, look again, and write."""
    now = clock.now()
    for name, row in lock_schedules(names).items():
        known = schedules.find(name)
        if known is not None and not row.enabled:
            write_changes(row, changes_of(known, row), now)


def new_row(declared: DeclaredSchedule, now: datetime) -> Schedule:
    """Return the row of a schedule that begins now."""
    row = Schedule(name=declared.name, last_at=now, **columns_of(declared))
    for column, value in beginning(row, now).items():
        setattr(row, column, value)
    return row


def write_changes(row: Schedule, changes: dict[str, Any], now: datetime) -> None:
    """Write what was changed; if that says when it fires, it begins anew."""
    if not changes:
        return
    for column, value in changes.items():
        setattr(row, column, value)
    if "enabled" in changes or any(column in changes for column in WHEN):
        changes |= beginning(row, now) | {"failures": 0, "error": ""}
    change_schedule(row.pk, changes)
    logger.info("Changed the schedule %s: %s.", row.name, ", ".join(sorted(changes)))


def changes_of(declared: DeclaredSchedule, row: Schedule) -> dict[str, Any]:
    """Return the columns that code says otherwise; one made in the admin keeps its name."""
    if row.origin != "code":
        logger.warning(
            "The schedule %s is not fired as code declares it: one of this name was made in the admin. "
            "Delete it there, or give another name= to schedule().", row.name,
        )  # fmt: skip
        return {}
    columns: dict[str, Any] = {**columns_of(declared), "enabled": True}
    return {column: value for column, value in columns.items() if getattr(row, column) != value}


def columns_of(declared: DeclaredSchedule) -> dict[str, Any]:
    """Return a declaration as columns."""
    tz = declared.tz or settings.TIME_ZONE
    return {
        "kind": declared.kind,
        "cron": declared.cron,
        "every": declared.every,
        "function": declared.function[:255],
        "tz": tz,
        "overlap": declared.overlap,
        "catch_up": declared.catch_up,
        "dst": declared.dst,
        "jitter": declared.jitter,
        "start_at": None if declared.start is None else midnight(declared.start, tz),
        "end_at": None if declared.end is None else last_moment(declared.end, tz),
    }


def midnight(day: date, tz: str) -> datetime:
    """Return the moment at which a day begins; a datetime is a moment already."""
    if isinstance(day, datetime):
        return day
    return datetime.combine(day, time.min, tzinfo=zone_of(tz))


def last_moment(day: date, tz: str) -> datetime:
    """Return the last moment of a day; a datetime is a moment already."""
    return day if isinstance(day, datetime) else midnight(day + timedelta(days=1), tz) - INSTANT
