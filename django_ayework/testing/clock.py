"""Travelling in time."""

from __future__ import annotations

import inspect
import unittest
from collections.abc import Iterator
from datetime import datetime, timedelta
from types import FrameType, TracebackType

from django_ayework.rules.durations import Seconds
from django_ayework.store.clock import clock


class time_travel:  # noqa: N801  # used as a function, and as a context manager
    """Move the engine's clock at once by a duration (seconds or timedelta); cumulative.

    As a context manager the move is undone at the end of the block; otherwise after the test (by the pytest
    plugin, or by the ``unittest.TestCase`` that calls it).

    Example::

        enqueue(remind(), delay=3600)
        time_travel(timedelta(hours=2))
        assert drain().succeeded == 1
    """

    def __init__(self, delta: Seconds) -> None:
        self.delta = delta if isinstance(delta, timedelta) else timedelta(seconds=delta)
        clock.shift(self.delta)
        case = running_case()
        if case is not None:
            case.addCleanup(clock.reset)

    def __enter__(self) -> time_travel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        clock.shift(-self.delta)


def now() -> datetime:
    """Return the engine's present moment."""
    return clock.now()


def running_case() -> unittest.TestCase | None:
    """Return the test case that is running in this thread, found through the stack."""
    for frame in frames():
        case = frame.f_locals.get("self")
        if isinstance(case, unittest.TestCase):
            return case
    return None


def frames() -> Iterator[FrameType]:
    """Yield the callers' frames, the nearest first."""
    frame = inspect.currentframe()
    while frame is not None:
        yield frame
        frame = frame.f_back
