"""One step of one schedule: whatever is next to be done about it, in one transaction."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import Enum
from functools import partial
from typing import Any

from django_ayework.define.schedules import schedules
from django_ayework.flow.events import report
from django_ayework.flow.schedules.running import Queued, asked, is_known, run
from django_ayework.flow.schedules.timings import due_moment, timing_of
from django_ayework.models import Schedule
from django_ayework.rules.durations import later
from django_ayework.rules.schedules.catching_up import BOUND, PUNCTUAL, TRIES, Plan, backoff, plan
from django_ayework.store.clock import clock
from django_ayework.store.database import in_own_transaction
from django_ayework.store.schedules import (
    change_schedule,
    first_queued,
    has_ended,
    insert_firing,
    link_firing,
    lock_due,
    move_schedule,
    was_dealt_with,
)

SOUND = {"failures": 0, "error": ""}


class Did(Enum):
    """What a step has done."""

    NOTHING = "nothing"  # not due, or somebody else is at it
    ASKED = "asked"
    PASSED = "passed"  # skipped, missed, or queued behind the firing before
    FIRED = "fired"
    FAILED = "failed"


class Overtaken(Exception):
    """The schedule is not where it was when it was locked; nothing of this step may stay."""


def step(id: int) -> Did:
    """Do what is next to be done about a schedule that is due.

    What the project's code raises undoes the step; it is reported, shown with the schedule, and tried again
    later and later.
    """
    try:
        return in_own_transaction(partial(step_here, id))
    except Overtaken:
        return Did.NOTHING
    except BaseException as error:
        name = in_own_transaction(partial(note_failure, id, error))
        if name:
            report(error, "queue", f"the schedule {name} could not be fired and is tried again")
        return Did.FAILED


def step_here(id: int) -> Did:
    """Lock first, so that what follows is decided once; a rival does not wait, but goes on to others."""
    now = clock.now()
    row = lock_due(id, now)
    if row is None or not is_known(row):
        return Did.NOTHING
    if row.queued and has_ended(row.last_group):
        return fire_queued(row, now)
    if row.next_at is None and row.kind == "next":
        return ask(row, now)
    if row.next_at is None or row.next_at > now:
        change_schedule(row.pk, {"due_at": due_moment(row, row.next_at, row.queued, now)})
        return Did.NOTHING
    return deal(row, row.next_at, now)


def ask(row: Schedule, now: datetime) -> Did:
    """Ask before anything is written: a function that raises leaves the row as it was.

    The moment it tells is kept under the lock, so every process fires the same occurrence.
    """
    declared = schedules.find(row.name)
    next_at = asked(declared, row, now) if declared is not None else None
    change_schedule(
        row.pk, {"next_at": next_at, "due_at": due_moment(row, next_at, row.queued, now), **SOUND}
    )
    return Did.ASKED


def deal(row: Schedule, first: datetime, now: datetime) -> Did:
    """Insert the firing first: whoever got here twice fails on its constraint, and has queued nothing.

    Then queue the work, and move the schedule last, if it is still where it was: it moves with both, or not.
    """
    decided = decide(row, first, now)
    if decided.missed_from is not None:
        status = "failed" if row.failures else "missed"
        insert_firing(row.pk, decided.missed_from, status, now, number=decided.missed, error=row.error)
    did, changes = Did.PASSED, dict[str, Any]()
    if decided.fire is not None:
        did, changes = fire(row, decided.fire, now)
    go_on(row, decided.last, changes, now)
    return did


def decide(row: Schedule, first: datetime, now: datetime) -> Plan:
    """Decide which occurrence is to be fired now."""
    catch_up: Any = row.catch_up
    return plan(timing_of(row), first, now, catch_up, PUNCTUAL + timedelta(seconds=row.jitter))


def fire(row: Schedule, occurrence: datetime, now: datetime) -> tuple[Did, dict[str, Any]]:
    """Insert a firing and queue its work, unless the one before has not ended; return the columns to write.

    Whether that has ended is asked under the lock, so it is the last firing of the fleet that is judged.
    """
    if row.overlap != "allow" and (row.queued or (row.last_group and not has_ended(row.last_group))):
        if row.overlap == "skip" or row.queued >= BOUND:
            insert_firing(row.pk, occurrence, "skipped", now)
            return Did.PASSED, {}
        insert_firing(row.pk, occurrence, "queued", now)
        return Did.PASSED, {"queued": row.queued + 1}
    firing = insert_firing(row.pk, occurrence, "fired", now)
    queued = run(row)
    link_firing(firing, "fired", queued.work, queued.group, now)
    return Did.FIRED, fired_now(queued, now)


def fired_now(queued: Queued, now: datetime) -> dict[str, Any]:
    """Return the columns of a schedule that has just fired."""
    return {"last_group": queued.group, "last_fired_at": now}


def go_on(row: Schedule, last: datetime, changes: dict[str, Any], now: datetime) -> None:
    """Move a schedule on to what follows the last occurrence that was dealt with, never back."""
    timing = timing_of(row)
    next_at = None if timing is None else timing.first_after(last)
    due_at = due_moment(row, next_at, changes.get("queued", row.queued), now)
    moved = {"next_at": next_at, "due_at": now if timing is None else due_at, "last_at": last}
    if not move_schedule(row, {**moved, **changes, **SOUND}):
        raise Overtaken


def fire_queued(row: Schedule, now: datetime) -> Did:
    """Queue the work first, then mark the firing: if either fails, the firing still waits.

    The count goes down with the mark; both are under the schedule's lock, so none is taken twice.
    """
    firing = first_queued(row.pk)
    if firing is None:
        change_schedule(row.pk, {"queued": 0})
        return Did.PASSED
    queued = run(row)
    link_firing(firing.pk, "fired", queued.work, queued.group, now)
    left = row.queued - 1
    due_at = due_moment(row, row.next_at, left, now)
    change_schedule(row.pk, {"queued": left, "due_at": due_at, **fired_now(queued, now), **SOUND})
    return Did.FIRED


def note_failure(id: int, error: BaseException) -> str:
    """Show the error with the schedule, and try later; return its name, or nothing if it has moved.

    The lock comes first again, as the failed step's is gone; what has been done meanwhile is left alone.
    """
    now = clock.now()
    row = lock_due(id, now)
    if row is None:
        return ""
    name = str(row.name)
    failures, text = row.failures + 1, f"{type(error).__name__}: {error}"
    row.error = text
    if failures >= TRIES and give_up(row, now):
        return name
    change_schedule(row.pk, {"failures": failures, "error": text, "due_at": later(now, backoff(failures))})
    return name


def give_up(row: Schedule, now: datetime) -> bool:
    """Write that an occurrence has failed, so that the next one has its turn; a function is asked for ever.

    The same is chosen as was tried: first what is queued, then what is due.
    """
    if row.queued and has_ended(row.last_group) and (firing := first_queued(row.pk)) is not None:
        link_firing(firing.pk, "failed", "", "", now)
        change_schedule(row.pk, {"queued": row.queued - 1, **SOUND})
        return True
    if row.next_at is None:
        return False
    decided = decide(row, row.next_at, now)
    if not was_dealt_with(row.pk, decided.last):
        insert_firing(row.pk, decided.last, "failed", now, error=row.error)
    go_on(row, decided.last, {}, now)
    return True
