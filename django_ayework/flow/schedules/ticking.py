"""A tick: fire what is due, and say when to look again."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from django.db import InterfaceError, OperationalError

from django_ayework.define.registry import registry
from django_ayework.define.schedules import schedules
from django_ayework.flow.events import report
from django_ayework.flow.schedules.steps import Did, step
from django_ayework.flow.schedules.timings import TICK
from django_ayework.store.clock import clock
from django_ayework.store.schedules import soonest

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
