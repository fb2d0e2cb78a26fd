"""Clocks, timers, tasks and doers for tests: nothing here waits for time to pass."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django_ayework.doers.rate_limited import Limits, LocalLimiter, RateLimited
from django_ayework.rules.rates import FixedWindow
from tests.rules.moments import NOON

PATIENCE = 60.0


class Time:
    """A clock that is moved by hand, and rings its timers on the way."""

    def __init__(self) -> None:
        self.moment = NOON
        self.timers: list[Timer] = []

    def now(self) -> datetime:
        return self.moment

    def seconds(self) -> float:
        return (self.moment - NOON).total_seconds()

    def timer(self, ring: Callable[[], object], within: object = None) -> Timer:
        self.timers.append(Timer(self, ring))
        return self.timers[-1]

    def advance(self, seconds: float = 0.0) -> None:
        """Let time pass, and ring whatever is due meanwhile; without time, what is due now."""
        until = self.moment + timedelta(seconds=seconds)
        while due := [timer for timer in self.timers if timer.due_at is not None and timer.due_at <= until]:
            first = min(due, key=lambda timer: timer.due_at)
            self.moment, first.due_at = max(self.moment, first.due_at), None
            first.ring()
        self.moment = until


class Timer:
    def __init__(self, time: Time, ring: Callable[[], object]) -> None:
        self.time, self.ring = time, ring
        self.due_at: datetime | None = None

    def set(self, delay: float) -> None:
        due_at = self.time.moment + timedelta(seconds=delay)
        self.due_at = due_at if self.due_at is None else min(self.due_at, due_at)

    def cancel(self) -> None:
        self.due_at = None

    @property
    def delay(self) -> float | None:
        """Seconds until it rings."""
        return None if self.due_at is None else (self.due_at - self.time.moment).total_seconds()


class Stage:
    """Tasks with names that say when they start, and end when they are told to."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.peak = 0
        self._running = 0
        self._changed = threading.Condition()
        self._ends: dict[str, threading.Event] = defaultdict(threading.Event)
        self._all_end = False

    def task(self, name: str) -> Callable[[], None]:
        def run() -> None:
            with self._changed:
                self.started.append(name)
                self._running += 1
                self.peak = max(self.peak, self._running)
                end = self._ends[name]
                if self._all_end:
                    end.set()
                self._changed.notify_all()
            assert end.wait(PATIENCE), f"nobody has ended {name}"
            with self._changed:
                self._running -= 1

        return run

    def end(self, *names: str) -> None:
        with self._changed:
            for name in names:
                self._ends[name].set()

    def end_all(self) -> None:
        with self._changed:
            self._all_end = True
            for end in self._ends.values():
                end.set()

    def wait_for(self, count: int) -> list[str]:
        """Wait until so many have started; return their names in order."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.started) >= count, PATIENCE), self.started
            return list(self.started)


class Inline:
    """A doer that runs each task at once, in the thread that submits it."""

    def __init__(self, room: int = 1000) -> None:
        self.room = room
        self.submitted: list[tuple[Any, ...]] = []

    def available(self) -> int:
        return self.room

    def submit(self, task, fairness=None, priority=0, created_at=None) -> None:
        self.submitted.append((fairness, priority, created_at))
        task()

    def drained(self) -> None: ...


class Holding:
    """A doer that holds tasks until it is told to run one; it tells when it has room."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.tasks: list[Callable[[], object]] = []
        self.listeners: list[Callable[[], object]] = []

    def available(self) -> int:
        return self.room - len(self.tasks)

    def submit(self, task, fairness=None, priority=0, created_at=None) -> None:
        self.tasks.append(task)

    def drained(self) -> None: ...

    def on_room(self, listener: Callable[[], object]) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def run_one(self) -> None:
        task = self.tasks[0]
        task()
        del self.tasks[0]
        for listener in self.listeners:
            listener()


class Kit:
    """Builds rate-limited doers that go by a clock, and notes what they run."""

    def __init__(self, time: Time) -> None:
        self.time = time
        self.ran: list[str] = []

    def limiter(self, limit, window, kind=FixedWindow) -> LocalLimiter:
        return LocalLimiter(partial(kind, limit, window))

    def doer(self, limit=1, window=1.0, inner=None, key=None, per_label=None) -> RateLimited:
        labels = self.limiter(*per_label) if per_label else None
        return self.of(Limits(self.limiter(limit, window), labels, key), limit, inner)

    def of(self, limits: Limits, limit: int = 100, inner=None) -> RateLimited:
        return RateLimited(limit, limits, inner or Inline())

    def submit(self, doer, *names: str, **hints: Any) -> None:
        for name in names:
            doer.submit(partial(self.ran.append, name), **hints)

    def run(self, seconds: float = 0.0) -> list[str]:
        """What runs within this time."""
        before = len(self.ran)
        self.time.advance(seconds)
        return self.ran[before:]

    @property
    def delay(self) -> float | None:
        """Seconds until the timer of the first doer rings."""
        return self.time.timers[0].delay


class Broken:
    """A limiter that raises so many times, and then allows everything."""

    def __init__(self, times: int, error: type[BaseException] = ConnectionError) -> None:
        self.times = times
        self.error = error

    def hit(self, name):
        if self.times:
            self.times -= 1
            raise self.error("no store")
        return FixedWindow(1, 1).hit(NOON)

    peek = hit
