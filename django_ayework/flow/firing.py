"""Firing schedules that are due, and acting on schedules by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from functools import partial
from typing import Any, NamedTuple

from django.db import InterfaceError, OperationalError

from django_ayework.define.handles import Handle
from django_ayework.define.ids import new_id
from django_ayework.define.registry import registry
from django_ayework.define.requests import WorkRequest
from django_ayework.define.schedules import DeclaredSchedule, schedules
from django_ayework.errors import ImproperWork
from django_ayework.flow.enqueue import enqueue_one
from django_ayework.flow.events import report
from django_ayework.flow.schedules import TICK, beginning, due_moment, midnight, timing_of
from django_ayework.heartbeat import project_code
from django_ayework.models import Schedule
from django_ayework.rules.durations import later, require_aware
from django_ayework.rules.schedules import BOUND, PUNCTUAL, TRIES, Plan, backoff, plan, zone_of
from django_ayework.store.clock import clock
from django_ayework.store.database import in_own_transaction
from django_ayework.store.rows import find_row
from django_ayework.store.schedules import (
    change_schedule,
    first_queued,
    has_ended,
    insert_firing,
    insert_schedule,
    link_firing,
    lock_due,
    lock_schedule,
    move_schedule,
    soonest,
    was_dealt_with,
)

# --- running ---
# What a schedule runs, and what it is told of the next time: the project's code is called here.


class Queued(NamedTuple):
    """What a firing has queued; empty when the function queued by itself, or nothing."""

    work: str = ""
    group: str = ""


def is_known(row: Schedule) -> bool:
    """Tell whether this process has what the schedule runs."""
    if row.origin == "admin":
        return registry.find(row.function) is not None
    return schedules.find(row.name) is not None


def run(row: Schedule) -> Queued:
    """Queue, in the transaction at hand, what a schedule that is known here runs.

    Raises ImproperWork when the function returns something else than a work, and whatever it raises.
    """
    request = request_of(row)
    if request is None:
        return Queued()
    handle = request if isinstance(request, Handle) else enqueue_one(request, {})
    return Queued(handle.id, handle.group_id)


def request_of(row: Schedule) -> WorkRequest[Any, Any] | Handle[Any, Any] | None:
    """Return the request to queue, under an id that is new each time."""
    declared = schedules.find(row.name)
    if row.origin == "admin" or declared is None:
        return registry.get(row.function).build(json.loads(row.input or "{}"))
    if isinstance(declared.run, WorkRequest):
        return replace(declared.run, id=new_id())
    with project_code():
        given = declared.run()
    if isinstance(given, WorkRequest):
        return given if find_row(given.id) is None else replace(given, id=new_id())
    if given is None or isinstance(given, Handle):
        return given
    raise ImproperWork(
        f"expected {declared.function}, which the schedule {declared.name!r} runs, to return a work built by "
        f"calling its type, or None, got: {given!r}."
    )


def asked(declared: DeclaredSchedule, row: Schedule, now: datetime) -> datetime | None:
    """Ask a schedule's function for the next moment; None is the end.

    Raises TypeError for anything else than a date, a datetime or None, and ValueError for a naive datetime
    and for a moment that is not after the last occurrence, which would be fired again.
    """
    if declared.next is None:
        return None
    with project_code():
        given = declared.next(max(now, row.start_at or now).astimezone(zone_of(row.tz)))
    if given is None:
        return None
    if not isinstance(given, date):
        raise TypeError(
            f"expected next of the schedule {row.name!r} to return a datetime, a date or None, "
            f"got: {given!r}."
        )
    moment = require_aware(midnight(given, row.tz), f"next of the schedule {row.name!r}").astimezone(UTC)
    if row.last_at is not None and moment <= row.last_at:
        raise ValueError(
            f"expected next of the schedule {row.name!r} to return a moment after the last one "
            f"({row.last_at.isoformat()}), or None for the end, got: {given!r}."
        )
    return None if row.end_at is not None and moment > row.end_at else moment


# --- steps ---
# One step of one schedule: whatever is next to be done about it, in one transaction.

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


# --- ticking ---
# A tick: fire what is due, and say when to look again.

#: Schedules that one tick looks at, and firings of one of them in it: the others have their turn too.
SCHEDULES = 100
FIRINGS = 100
#: Seconds to the next tick when there was something to do, and when somebody else was at it.
AT_ONCE, SOON = 0.0, 0.1
#: Seconds to the next tick while there are no schedules at all.
IDLE = 5.0


class Ticked(NamedTuple):
    """How many were fired, how many seconds there is nothing to do, and whether there was."""

    fired: int
    pause: float
    busy: bool = False


def fire_due(most: int = FIRINGS, is_over: Callable[[], bool] = lambda: False) -> Ticked:
    """Fire the schedules that are due, each up to ``most`` times; stop early once ``is_over`` says so.

    One statement when nothing is due.
    """
    clock.synchronise()
    now = clock.now()
    waiting = soonest(schedules.names(), registry.names(), SCHEDULES)
    due = [id for id, due_at in waiting if due_at <= now]
    if not due:
        return Ticked(0, min(TICK, (waiting[0][1] - now).total_seconds()) if waiting else IDLE)
    done: list[Did] = []
    for id in due:
        done += work_off(id, most, is_over)
    return Ticked(done.count(Did.FIRED), AT_ONCE if set(done) - {Did.NOTHING} else SOON, True)


def work_off(id: int, most: int, is_over: Callable[[], bool]) -> list[Did]:
    """Take steps with a schedule while there is something to do; one that cannot keeps no other waiting.

    A function is asked after each firing, and what it then tells is left for the next tick: one that says
    "now" again and again would keep us for ever.
    """
    done: list[Did] = []
    while len(done) < most and not is_over():
        try:
            did = step(id)
        except (OperationalError, InterfaceError):
            raise
        except BaseException as error:
            report(error, "queue", "a schedule could not be fired")
            did = Did.FAILED
        done.append(did)
        if did in (Did.NOTHING, Did.FAILED) or (did is Did.ASKED and Did.FIRED in done):
            break
    return done


# --- acting ---
# Acting on a schedule by hand: pausing, resuming, running it now; making one.


def set_paused(id: int, paused: bool) -> bool:
    """Pause a schedule, or let it go on from now; return whether that changed anything."""
    return in_own_transaction(partial(set_paused_here, id, paused))


def set_paused_here(id: int, paused: bool) -> bool:
    """Lock before looking, so that a firing in flight is over; what it moved is then written over.

    Occurrences of the pause are not made up for, whatever ``catch_up`` says.
    """
    row = lock_schedule(id)
    if row is None or row.paused is paused:
        return False
    row.paused = paused
    changes = {"paused": paused, "failures": 0, "error": "", **beginning(row, clock.now())}
    change_schedule(row.pk, changes)
    return True


def run_now(id: int) -> Queued:
    """Fire a schedule now, beside its occurrences, whether it is paused or not; return what was queued.

    Raises ImproperWork when it is gone or this process does not know what it runs, and whatever that raises.
    """
    return in_own_transaction(partial(run_now_here, id))


def run_now_here(id: int) -> Queued:
    """Insert the firing first, as in a tick; its occurrence is this very moment, so it takes no other's.

    The schedule is not moved; only its last group is noted, for the overlap to be judged by.
    """
    row = lock_schedule(id)
    if row is None or not is_known(row):
        name = "it" if row is None else row.name
        raise ImproperWork(f"{name} cannot be run: no code that is loaded here declares it.")
    now = clock.now()
    firing = insert_firing(row.pk, now, "fired", now)
    queued = run(row)
    link_firing(firing, "fired", queued.work, queued.group, now)
    change_schedule(row.pk, fired_now(queued, now))
    return queued


def save_made(id: int | None, columns: Mapping[str, Any]) -> Schedule:
    """Save a schedule that is made or changed by hand, and let it go on from now; return its row."""
    return in_own_transaction(partial(save_made_here, id, columns))


def save_made_here(id: int | None, columns: Mapping[str, Any]) -> Schedule:
    """Lock a row before it is changed, so that a firing in flight is over.

    Only these columns are written: what a tick keeps in the others stays.
    """
    now = clock.now()
    row = None if id is None else lock_schedule(id)
    made = row or Schedule(origin="admin", last_at=now)
    for column, value in columns.items():
        setattr(made, column, value)
    changes = {**columns, "failures": 0, "error": "", **beginning(made, now)}
    if row is not None:
        change_schedule(made.pk, changes)
        return made
    for column, value in changes.items():
        setattr(made, column, value)
    return insert_schedule(made)
