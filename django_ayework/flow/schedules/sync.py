"""Keeping the rows of schedules in step with what code declares."""

from __future__ import annotations

import logging
from datetime import date, datetime, time, timedelta
from functools import partial
from typing import Any

from django.conf import settings

from django_ayework.define.schedules import DeclaredSchedule, schedules
from django_ayework.flow.schedules.timings import beginning
from django_ayework.models import Schedule
from django_ayework.rules.cron.moments import zone_of
from django_ayework.rules.schedules.timing import INSTANT
from django_ayework.store.clock import clock
from django_ayework.store.database import in_own_transaction
from django_ayework.store.schedules import (
    all_declared,
    change_schedule,
    disabled_names,
    insert_missing,
    lock_schedules,
)

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
