"""Firing schedules: a tick takes steps with each schedule that is due, each step in one transaction.

The schedule's lock comes first in a step, so that the step is decided once in the fleet. The firing is
inserted before the work: a process that deals with the same occurrence again fails on the firing's
constraint, and queues nothing. The schedule moves on last, if nobody has moved it meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from typing import Any, NamedTuple

from django.db import Error

from django_ayework.define.handles import Handle
from django_ayework.define.requests import WorkRequest, new_id
from django_ayework.define.schedules import schedules
from django_ayework.define.types import registry
from django_ayework.documentation import type_error, value_error
from django_ayework.errors import ImproperWork
from django_ayework.flow.enqueue import enqueue_one
from django_ayework.flow.hooks import report
from django_ayework.flow.schedules import NO_FAILURE, TICK, due_moment, midnight, timing_of
from django_ayework.models import Schedule
from django_ayework.rules.durations import later, require_aware
from django_ayework.rules.formatting import error_text
from django_ayework.rules.schedules import (
    BOUND,
    PUNCTUAL,
    TRIES,
    FiringPlan,
    pause_after_failures,
    plan,
    zone_of,
)
from django_ayework.store.database import atomic, clock, own_transaction, project_code_within
from django_ayework.store.rows import find_row
from django_ayework.store.schedules import (
    change_schedule,
    first_queued,
    has_ended,
    insert_firing,
    link_firing,
    lock_due,
    lock_schedule,
    move_schedule,
    soonest,
    was_dealt_with,
)

#: Schedules that one tick looks at, and steps that it takes with one of them: others get their turn too.
SCHEDULES = 100
FIRINGS = 100
#: Schedules that a tick looks at which no other tick follows.
ALL = 2**31 - 1
#: Seconds to the next tick when there was something to do, and when another process had a schedule locked.
AT_ONCE, SOON = 0.0, 0.1
#: Seconds to the next tick while there are no schedules at all.
IDLE = 5.0


# A tick


class Tick(NamedTuple):
    """How many schedules fired, and the seconds until there is something to do."""

    fired: int
    pause: float


def fire_due(
    most: int = FIRINGS, is_over: Callable[[], bool] = lambda: False, limit: int = SCHEDULES
) -> Tick:
    """Fire up to ``limit`` schedules that are due, each up to ``most`` times, until ``is_over`` says so.

    One statement when nothing is due.
    """
    now = clock.read()
    waiting = soonest(schedules.names(), registry.names(), limit)
    due = [id for id, due_at in waiting if due_at <= now]
    if not due:
        return Tick(0, min(TICK, (waiting[0][1] - now).total_seconds()) if waiting else IDLE)
    done = [did for id in due for did in take_steps(id, most, is_over)]
    return Tick(done.count(Did.FIRED), AT_ONCE if set(done) - {Did.NOTHING} else SOON)


def take_steps(id: int, most: int, is_over: Callable[[], bool]) -> list[Did]:
    """Take steps with a schedule while there is something to do; a failure keeps no other schedule waiting.

    A function is asked for its next moment after each firing, and the answer is left for the next tick: a
    function that always answers "now" would make the tick endless.
    """
    done: list[Did] = []
    while len(done) < most and not is_over():
        did = step(id)
        done.append(did)
        if did in (Did.NOTHING, Did.FAILED) or (did is Did.ASKED and Did.FIRED in done):
            break
    return done


# A step


class Did(Enum):
    """The result of a step."""

    NOTHING = "nothing"  # not due, or another process holds the lock
    ASKED = "asked"
    PASSED = "passed"  # skipped, missed, or queued behind the firing before
    FIRED = "fired"
    FAILED = "failed"


class Overtaken(Exception):
    """The schedule is not where it was when it was locked; nothing of this step may stay."""


def step(id: int) -> Did:
    """Take the next step with a schedule that is due.

    An exception of the project's code undoes the step; it is reported, shown with the schedule, and the step
    is tried again after longer and longer waits.
    """
    try:
        return try_step(id)
    except Overtaken:
        return Did.NOTHING
    except BaseException as error:
        name = note_failure(id, error)
        if name:
            report(error, "queue", f"the schedule {name} could not be fired and is tried again")
        return Did.FAILED


@own_transaction
def try_step(id: int) -> Did:
    """Lock a schedule, and take its next step; skip a schedule that another process has locked."""
    now = clock.now()
    row = lock_due(id, now)
    if row is None or not is_known(row):
        return Did.NOTHING
    if row.queued and has_ended(row.last_group):
        return fire_queued(row, now)
    if row.next_at is None and row.kind == "next":
        # Asked before anything is written: an exception leaves the row as it was. The moment is stored under
        # the lock, so that every process fires the same occurrence.
        next_at = next_moment(row, now)
        due_at = due_moment(row, next_at, row.queued, now)
        change_schedule(row.pk, {"next_at": next_at, "due_at": due_at, **NO_FAILURE})
        return Did.ASKED
    if row.next_at is None or row.next_at > now:
        change_schedule(row.pk, {"due_at": due_moment(row, row.next_at, row.queued, now)})
        return Did.NOTHING
    return fire_occurrence(row, row.next_at, now)


def fire_occurrence(row: Schedule, first: datetime, now: datetime) -> Did:
    """Record missed occurrences, fire the one that is due, and move the schedule on."""
    decided = plan_of(row, first, now)
    if decided.missed_from is not None:
        status = "failed" if row.failures else "missed"
        insert_firing(row.pk, decided.missed_from, status, now, number=decided.missed, error=row.error)
    did, changes = Did.PASSED, dict[str, Any]()
    if decided.fire is not None:
        did, changes = fire(row, decided.fire, now)
    move_on(row, decided.last, changes, now)
    return did


def plan_of(row: Schedule, first: datetime, now: datetime) -> FiringPlan:
    """Decide which occurrence is to be fired now."""
    catch_up: Any = row.catch_up
    slack = PUNCTUAL + timedelta(seconds=row.jitter)
    return plan(timing_of(row), first, now, catch_up, slack, was_tried=row.failures > 0)


def fire(row: Schedule, occurrence: datetime, now: datetime) -> tuple[Did, dict[str, Any]]:
    """Insert a firing and queue its work, unless the firing before has not ended; return the changed columns.

    The end of the firing before is read under the lock, so the last firing of the fleet is judged.
    """
    if row.overlap != "allow" and (row.queued or not has_ended(row.last_group)):
        waits = row.overlap == "queue" and row.queued < BOUND
        insert_firing(row.pk, occurrence, "queued" if waits else "skipped", now)
        return Did.PASSED, {"queued": row.queued + 1} if waits else {}
    insert_firing(row.pk, occurrence, "fired", now)
    return Did.FIRED, queue_for(row, occurrence, now)


def fire_queued(row: Schedule, now: datetime) -> Did:
    """Queue the work of a queued firing, then mark the firing: if either fails, the firing still waits.

    The counter goes down with the mark; both are under the schedule's lock, so no firing is taken twice. A
    function that has not said its next moment yet is asked at the next step.
    """
    firing = first_queued(row.pk)
    if firing is None:
        change_schedule(row.pk, {"queued": 0})
        return Did.PASSED
    fired = queue_for(row, firing.occurrence, now)
    left = row.queued - 1
    is_asked_next = row.kind == "next" and row.next_at is None
    due_at = now if is_asked_next else due_moment(row, row.next_at, left, now)
    change_schedule(row.pk, {"queued": left, "due_at": due_at, **fired, **NO_FAILURE})
    return Did.FIRED


def queue_for(row: Schedule, occurrence: datetime, now: datetime) -> dict[str, Any]:
    """Queue the work of a firing and link it; return the columns of a schedule that has just fired.

    The work goes through the queue, because the process that fires may be one that runs no works.
    The links stay empty when the function queued by itself, or nothing. Raises ImproperWork when the function
    returns anything else than a work, and whatever it raises itself.
    """
    request, work, group = request_of(row), "", ""
    if request is not None:
        handle = request if isinstance(request, Handle) else enqueue_one(request, {"skip_queue": False})
        work, group = handle.id, handle.group_id
    link_firing(row.pk, occurrence, "fired", work, group, now)
    return {"last_group": group, "last_fired_at": now}


def move_on(row: Schedule, last: datetime, changes: dict[str, Any], now: datetime) -> None:
    """Move a schedule to the occurrence after the last one dealt with, never back. Raises Overtaken."""
    timing = timing_of(row)
    next_at = None if timing is None else timing.first_after(last)
    due_at = due_moment(row, next_at, changes.get("queued", row.queued), now)
    moved = {"next_at": next_at, "due_at": now if timing is None else due_at, "last_at": last}
    if not move_schedule(row, {**moved, **changes, **NO_FAILURE}):
        raise Overtaken


@own_transaction
def note_failure(id: int, error: BaseException) -> str:
    """Store the error with the schedule, and delay the next try; return the name, or "" if it has moved on.

    The failed step's lock is gone, so the schedule is locked again; changes made meanwhile stay.
    """
    now = clock.now()
    row = lock_due(id, now)
    if row is None:
        return ""
    failures = row.failures + 1
    row.error = error_text(error)
    if failures < TRIES or not gives_up(row, now):
        due_at = later(now, pause_after_failures(failures))
        change_schedule(row.pk, {"failures": failures, "error": row.error, "due_at": due_at})
    return str(row.name)


def gives_up(row: Schedule, now: datetime) -> bool:
    """Give up, and tell whether that was possible: not if the next occurrence cannot be told either."""
    try:
        with atomic():
            return give_up(row, now)
    except Error:
        raise
    except BaseException:  # that of the failed try, which is reported
        return False


def give_up(row: Schedule, now: datetime) -> bool:
    """Record that an occurrence has failed and go on to the next; return False for a function without one.

    The occurrence is chosen as it was when it was tried: a queued firing first, then the one that is due.
    """
    if row.queued and has_ended(row.last_group) and (firing := first_queued(row.pk)) is not None:
        link_firing(row.pk, firing.occurrence, "failed", "", "", now, error=row.error)
        change_schedule(row.pk, {"queued": row.queued - 1, **NO_FAILURE})
        return True
    if row.next_at is None:
        return False
    decided = plan_of(row, row.next_at, now)
    if not was_dealt_with(row.pk, decided.last):
        insert_firing(row.pk, decided.last, "failed", now, error=row.error)
    move_on(row, decided.last, {}, now)
    return True


# Running the project's code


@own_transaction
def run_now(id: int) -> None:
    """Fire a schedule now, beside its occurrences, even while it is paused.

    The occurrence of the firing is this very moment. The schedule is not moved; only its last group is
    noted, for the overlap to be judged by.

    Raises ImproperWork when the schedule is gone or its code is not loaded here, and whatever that raises.
    """
    row = lock_schedule(id)
    if row is None or not is_known(row):
        name = "it" if row is None else row.name
        raise ImproperWork(
            f"{name} cannot be run: no code that is loaded here declares it.", code="schedule-not-loaded"
        )
    now = clock.read()
    insert_firing(row.pk, now, "fired", now)
    change_schedule(row.pk, queue_for(row, now, now))


def is_known(row: Schedule) -> bool:
    """Tell whether the code that a schedule runs is loaded in this process."""
    if row.origin == "admin":
        return registry.find(row.function) is not None
    return schedules.find(row.name) is not None


def request_of(row: Schedule) -> WorkRequest[Any, Any] | Handle[Any, Any] | None:
    """Return the request to queue, under an id that is new each time."""
    declared = schedules.find(row.name)
    if row.origin == "admin" or declared is None:
        return registry.get(row.function).build(json.loads(row.input or "{}"))
    if isinstance(declared.run, WorkRequest):
        return replace(declared.run, id=new_id())
    with project_code_within():
        given = declared.run()
    if isinstance(given, WorkRequest):
        return given if find_row(given.id) is None else replace(given, id=new_id())
    if given is None or isinstance(given, Handle):
        return given
    raise ImproperWork(
        f"expected {declared.function}, which the schedule {declared.name!r} runs, to return a work built by "
        f"calling its type, or None, got: {given!r}.",
        code="schedule-function-result",
    )


def next_moment(row: Schedule, now: datetime) -> datetime | None:
    """Ask a schedule's function for the next moment; None is the end.

    Raises Overtaken where the code that is loaded declares other times: a release with the function is asked.
    Raises TypeError for anything else than a date, a datetime or None, and ValueError for a naive datetime
    and for a moment that is not after the last occurrence, which would be fired again.
    """
    declared = schedules.find(row.name)
    if declared is None or declared.next is None:
        raise Overtaken
    with project_code_within():
        given = declared.next(max(now, row.start_at or now).astimezone(zone_of(row.tz)))
    if given is None:
        return None
    if not isinstance(given, date):
        raise type_error(
            "schedule-next-not-usable",
            f"expected next of the schedule {row.name!r} to return a datetime, a date or None, "
            f"got: {given!r}.",
        )
    moment = require_aware(midnight(given, row.tz), f"next of the schedule {row.name!r}").astimezone(UTC)
    if row.last_at is not None and moment <= row.last_at:
        raise value_error(
            "schedule-next-not-usable",
            f"expected next of the schedule {row.name!r} to return a moment after the last one "
            f"({row.last_at.isoformat()}), or None for the end, got: {given!r}.",
        )
    return None if row.end_at is not None and moment > row.end_at else moment
