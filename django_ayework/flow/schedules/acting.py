"""Acting on a schedule by hand: pausing, resuming, running it now; making one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from django_ayework.errors import ImproperWork
from django_ayework.flow.schedules.running import Queued, is_known, run
from django_ayework.flow.schedules.steps import fired_now
from django_ayework.flow.schedules.timings import beginning
from django_ayework.models import Schedule
from django_ayework.store.clock import clock
from django_ayework.store.database import in_own_transaction
from django_ayework.store.schedules import (
    change_schedule,
    insert_firing,
    insert_schedule,
    link_firing,
    lock_schedule,
)


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
