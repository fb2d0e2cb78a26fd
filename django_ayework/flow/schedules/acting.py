"""Acting on a schedule by hand: pausing, resuming, running it now."""

from __future__ import annotations

from functools import partial

from django_ayework.errors import ImproperWork
from django_ayework.flow.schedules.running import Queued, is_known, run
from django_ayework.flow.schedules.steps import fired_now
from django_ayework.flow.schedules.timings import beginning
from django_ayework.models import Schedule
from django_ayework.store.clock import clock
from django_ayework.store.database import in_own_transaction
from django_ayework.store.schedules import change_schedule, insert_firing, link_firing, lock_schedule


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


def reschedule(row: Schedule) -> None:
    """Let a schedule that was made or changed in the admin go on from now."""
    change_schedule(row.pk, beginning(row, clock.now()))
