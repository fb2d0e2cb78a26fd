"""The clock of a test: ``time_travel()`` moves it, and ``now()`` reads it."""

from __future__ import annotations

import inspect
import unittest
from datetime import datetime, timedelta

from django_ayework.documentation import type_error
from django_ayework.rules.durations import Seconds
from django_ayework.rules.retry import is_number
from django_ayework.store.database import clock


class time_travel:  # noqa: N801  # used as a function, and as a context manager
    """Move the engine's clock by a duration (seconds or timedelta); several calls add up.

    As a context manager the move is undone at the end of the block. Otherwise the pytest plugin, or the
    ``unittest.TestCase`` that calls it, undoes it after the test; after the tests of the class if it is
    called by ``setUpClass`` or ``setUpTestData``.

    Example::

        enqueue(remind(), delay=3600)
        time_travel(timedelta(hours=2))
        assert drain().succeeded == 1
    """

    def __init__(self, delta: Seconds) -> None:
        if not isinstance(delta, timedelta) and not is_number(delta):
            expected = "expected time_travel(…) to be given seconds (a number) or a timedelta"
            raise type_error("duration-not-usable", f"{expected}, got: {delta!r}.")
        self.delta = delta if isinstance(delta, timedelta) else timedelta(seconds=delta)
        case = running_case()
        self.lasts = isinstance(case, type)
        clock.shift(self.delta, keep=self.lasts)
        if isinstance(case, type):
            case.addClassCleanup(clock.reset, keep=False)
        elif case is not None:
            case.addCleanup(clock.reset)

    def __enter__(self) -> time_travel:
        return self

    def __exit__(self, *error: object) -> None:
        clock.shift(-self.delta, keep=self.lasts)


def now() -> datetime:
    """Return the engine's present moment, an aware datetime that ``time_travel()`` moves."""
    return clock.now()


def running_case() -> unittest.TestCase | type[unittest.TestCase] | None:
    """Return the test case that is running in this thread, or is being set up, found through the stack."""
    frame = inspect.currentframe()
    while frame is not None:
        case = frame.f_locals.get("self")
        if isinstance(case, unittest.TestCase):
            return case
        made = frame.f_locals.get("cls")
        is_set_up = frame.f_code.co_name == "setUpClass"
        if is_set_up and isinstance(made, type) and issubclass(made, unittest.TestCase):
            return made
        frame = frame.f_back
    return None
