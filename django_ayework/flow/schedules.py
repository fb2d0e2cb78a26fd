"""Schedules as rows: kept in step with the code, changed by hand, shown. ``scheduler`` fires them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from itertools import islice
from typing import Any, Literal

from django.conf import settings

from django_ayework.define.schedules import DeclaredSchedule, schedules
from django_ayework.documentation import logged
from django_ayework.logs import logger
from django_ayework.models import Schedule
from django_ayework.rules.durations import later
from django_ayework.rules.schedules import INSTANT, PUNCTUAL, Timing, zone_of
from django_ayework.store.database import clock, own_transaction
from django_ayework.store.schedules import (
    all_declared,
    all_schedules,
    change_schedule,
    delete_schedule,
    insert_missing,
    insert_schedule,
    lock_schedule,
    lock_schedules,
)

State = Literal["active", "failing", "paused", "ended", "not declared"]

#: Seconds until a schedule with queued firings is looked at again: these wait for works, not for a moment.
TICK = 1.0
#: A schedule that code declares is not declared any more once it has been due for so long.
UNFIRED = timedelta(minutes=10)
#: A schedule begins anew when one of these columns changes; other changes only count from now on.
WHEN = ("kind", "cron", "every", "tz", "dst", "start_at", "end_at")
#: The columns of a schedule that does not fail.
NO_FAILURE = {"failures": 0, "error": ""}


# Moments


def timing_of(row: Schedule) -> Timing | None:
    """Return the occurrences of a schedule; None when a function gives them, one at a time."""
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
    """Return the columns of a schedule that begins, or goes on, now: past occurrences are not caught up."""
    row.next_at = None
    if not row.enabled or row.paused:
        return {"next_at": None, "due_at": None}
    timing = timing_of(row)
    if timing is None:
        return {"next_at": None, "due_at": now}
    next_at = timing.first_after(max(now, row.last_at or now))
    return {"next_at": next_at, "due_at": due_moment(row, next_at, row.queued, now)}


def due_moment(row: Schedule, next_at: datetime | None, queued: int, now: datetime) -> datetime | None:
    """Return when a schedule is due: at its next occurrence, or sooner if firings are queued."""
    planned = next_at
    if next_at is not None and row.jitter:
        planned = later(next_at, random.uniform(0.0, most_jitter(row, next_at)))  # noqa: S311
    if not queued:
        return planned
    again = now + timedelta(seconds=TICK)
    return again if planned is None else min(again, planned)


def most_jitter(row: Schedule, next_at: datetime) -> float:
    """Return by how many seconds a firing may be delayed: not until the occurrence after it is due."""
    timing = timing_of(row)
    following = None if timing is None else timing.first_after(next_at)
    if following is None:
        return row.jitter
    return min(row.jitter, max(0.0, (following - next_at - PUNCTUAL).total_seconds()))


def upcoming(row: Schedule, number: int) -> list[datetime]:
    """Return the next occurrences, as far as they are known."""
    timing = timing_of(row)
    if row.next_at is None or timing is None:
        return [] if row.next_at is None else [row.next_at]
    following = timing.between(row.next_at, datetime.max.replace(tzinfo=row.next_at.tzinfo))
    return [row.next_at, *islice(following, number - 1)]


def midnight(day: date, tz: str) -> datetime:
    """Return the moment at which a day begins; a datetime is a moment already."""
    if isinstance(day, datetime):
        return day
    return datetime.combine(day, time.min, tzinfo=zone_of(tz))


# Keeping rows in step with the code


def sync() -> None:
    """Insert declared schedules without a row, write what changed, disable schedules no longer declared.

    One statement when there is nothing to do. A disabled schedule keeps its row and its history, and goes on
    from the moment at which it is declared again.
    """
    if differing(all_declared(schedules.names())):
        write_differences()


def differing(stored: dict[str, Schedule]) -> set[str]:
    """Return the names of schedules with something to write."""
    changed = {
        declared.name
        for declared in schedules
        if declared.name not in stored or changes_of(declared, stored[declared.name])
    }
    return changed | {name for name, row in stored.items() if is_orphan(row)}


def is_orphan(row: Schedule) -> bool:
    """Tell whether to disable a schedule: its declaration has been removed from the code."""
    return row.origin == "code" and row.enabled and schedules.find(row.name) is None


@own_transaction
def write_differences() -> None:
    """Insert new rows, then lock, compare again, and write.

    Processes that start at once insert the same rows, and the first insert counts. Rows are locked in the
    order of names, so that two processes cannot deadlock.
    """
    now = clock.now()
    stored = all_declared(schedules.names())
    insert_new(missing_in(stored), now)
    for row in lock_schedules(differing(stored)).values():
        correct(row, now)


def missing_in(stored: dict[str, Schedule]) -> list[DeclaredSchedule]:
    """Return the declared schedules that have no row."""
    return [declared for declared in schedules if declared.name not in stored]


def insert_new(missing: list[DeclaredSchedule], now: datetime) -> None:
    """Insert rows that begin now; those that another process has inserted meanwhile stay."""
    if missing:
        insert_missing(new_row(declared, now) for declared in missing)
    for declared in missing:
        logger.info("Added the schedule %s, which runs %s.", declared.name, declared.function)


def correct(row: Schedule, now: datetime) -> None:
    """Disable a schedule that no code declares any more, or write what its declaration says; it is locked."""
    if not is_orphan(row):
        write_changes(row, now)
        return
    row.enabled = False
    change_schedule(row.pk, {"enabled": False, **beginning(row, now)})
    logger.warning(
        "Disabled the schedule %s: no code declares it any more. %s", row.name, logged("schedule-disabled")
    )


def restore() -> None:
    """Enable or add what this process declares; disable what no process fires any more.

    A process of an older release that starts during a deployment disables what the new release has added. One
    that ends late has enabled what the new release has removed. A row may be deleted by hand, as one of the
    admin that has the name. One statement when there is nothing to do.
    """
    unfired = clock.now() - UNFIRED
    stored = all_declared(schedules.names())
    missing, names = missing_in(stored), [name for name, row in stored.items() if is_wrong(row, unfired)]
    if missing or names:
        settle(missing, names, unfired)


def is_wrong(row: Schedule, unfired: datetime) -> bool:
    """Tell whether to enable a schedule, or to disable one that no process has fired for long."""
    if is_orphan(row):
        return row.due_at is not None and row.due_at < unfired
    return row.origin == "code" and not row.enabled and schedules.find(row.name) is not None


@own_transaction
def settle(missing: list[DeclaredSchedule], names: list[str], unfired: datetime) -> None:
    """Add, enable or disable those of these schedules that are as they were; pass over one that is firing."""
    now = clock.now()
    insert_new(missing, now)
    for row in lock_schedules(names, skip_locked=True).values():
        if is_wrong(row, unfired):
            correct(row, now)


def new_row(declared: DeclaredSchedule, now: datetime) -> Schedule:
    """Return the row of a schedule that begins now."""
    row = Schedule(name=declared.name, last_at=now, **columns_of(declared))
    assign(row, beginning(row, now))
    return row


def write_changes(row: Schedule, now: datetime) -> None:
    """Write what code declares otherwise; a schedule whose occurrences change begins anew."""
    declared = schedules.find(row.name)
    changes = changes_of(declared, row) if declared is not None else {}
    if not changes:
        return
    assign(row, changes)
    if "enabled" in changes or any(column in changes for column in WHEN):
        changes |= beginning(row, now) | NO_FAILURE
    change_schedule(row.pk, changes)
    logger.info("Changed the schedule %s: %s.", row.name, ", ".join(sorted(changes)))


def assign(row: Schedule, columns: Mapping[str, Any]) -> None:
    """Set columns of a row in memory."""
    for column, value in columns.items():
        setattr(row, column, value)


def changes_of(declared: DeclaredSchedule, row: Schedule) -> dict[str, Any]:
    """Return the columns that code declares otherwise; a schedule made in the admin keeps its name."""
    if row.origin != "code":
        logger.warning(
            "The schedule %s is not fired as code declares it: one of this name was made in the admin. "
            "Delete it there, or give another name= to schedule(). %s",
            row.name, logged("schedule-name-taken"),
        )  # fmt: skip
        return {}
    columns: dict[str, Any] = {**columns_of(declared), "enabled": True}
    return {column: value for column, value in columns.items() if getattr(row, column) != value}


def columns_of(declared: DeclaredSchedule) -> dict[str, Any]:
    """Return a declaration as columns."""
    tz = declared.tz or settings.TIME_ZONE
    same = ("kind", "cron", "every", "overlap", "catch_up", "dst", "jitter")
    end = declared.end
    if end is not None and not isinstance(end, datetime):  # the last moment of the day
        end = midnight(end + timedelta(days=1), tz) - INSTANT
    return {
        **{column: getattr(declared, column) for column in same},
        "function": declared.function[:255],
        "tz": tz,
        "start_at": None if declared.start is None else midnight(declared.start, tz),
        "end_at": end,
    }


# Changing schedules by hand


@own_transaction
def set_paused(id: int, paused: bool) -> bool:
    """Pause a schedule, or let it go on from now; return whether that changed anything.

    The lock waits for a firing in progress, so that its changes are written over. Occurrences of the pause
    are not caught up, whatever ``catch_up`` says.
    """
    row = lock_schedule(id)
    if row is None or row.paused is paused:
        return False
    row.paused = paused
    change_schedule(row.pk, {"paused": paused, **NO_FAILURE, **beginning(row, clock.read())})
    return True


@own_transaction
def save_by_hand(id: int | None, columns: Mapping[str, Any]) -> Schedule:
    """Save a schedule that is made (``id`` None) or changed by hand. Return its row.

    It begins anew, now, if its occurrences change. Otherwise it keeps the one that is due, which is tried at
    once if it has failed. The lock waits for a firing in progress. Only these columns are written: those
    that a tick keeps stay.
    """
    now = clock.read()
    stored = None if id is None else lock_schedule(id)
    row = stored or Schedule(origin="admin", last_at=now)
    changes = {**columns, **NO_FAILURE}
    begins = stored is None or any(columns[column] != getattr(row, column) for column in WHEN)
    had_failed = row.failures > 0
    assign(row, columns)
    if begins:
        changes |= beginning(row, now)
    elif had_failed:
        changes["due_at"] = now
    if stored is not None:
        change_schedule(row.pk, changes)
        return row
    assign(row, changes)
    return insert_schedule(row)


@own_transaction
def delete_by_hand(id: int) -> None:
    """Delete a schedule with its history, that of a firing in progress too: the lock waits for it."""
    if lock_schedule(id) is not None:
        delete_schedule(id)


# Showing schedules


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleOverview:
    """One schedule; ``when`` is its cron expression, its interval in seconds, or ``"function"``.

    ``next`` are its next occurrences as far as they are known, ``queued`` the firings that wait for the works
    of the firing before.
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


def schedules_overview(occurrences: int) -> list[ScheduleOverview]:
    """Return all schedules by name, each with so many of its next occurrences."""
    return [
        ScheduleOverview(
            name=row.name,
            state=state_of(row),
            when=f"every {row.every or 0:g} s" if row.kind == "every" else row.cron or "function",
            tz=row.tz,
            runs=row.function,
            next=upcoming(row, occurrences),
            last_fired_at=row.last_fired_at,
            queued=row.queued,
            error=row.error,
        )
        for row in all_schedules()
    ]


def state_of(row: Schedule) -> State:
    """Return whether a schedule fires, or what prevents it."""
    if not row.enabled:
        return "not declared"
    if row.paused:
        return "paused"
    if row.failures:
        return "failing"
    return "active" if row.due_at is not None else "ended"
