"""Doers that run so many tasks at a time and choose the next one, and a doer without limits."""

from __future__ import annotations

import logging
import queue
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

from django_ayework.documentation import logged
from django_ayework.doers import base
from django_ayework.doers.base import BaseDoer, HeldTask, close_connections, run_task
from django_ayework.rules.rates import whole

logger = logging.getLogger("django_ayework")

#: The key by which waiting tasks are sorted, given the number of running tasks of each fairness label.
Order: TypeAlias = Callable[[HeldTask, Mapping[str, int]], tuple[Any, ...]]


def by_age(task: HeldTask, running: Mapping[str, int] | None = None) -> tuple[Any, ...]:
    """Order by age, the older first; of one moment, the one that was submitted first."""
    return task.created_at, task.number


def by_priority(task: HeldTask, running: Mapping[str, int]) -> tuple[Any, ...]:
    """Order by priority, the higher first, then by age."""
    return -task.priority, *by_age(task)


def by_balance(task: HeldTask, running: Mapping[str, int]) -> tuple[Any, ...]:
    """Order by how few tasks of the same label run, then by priority, then by age."""
    return running.get(task.fairness, 0), *by_priority(task, running)


class ThreadPool:
    """Runs functions in at most ``most`` threads (None: no limit), which end when they stay idle."""

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._threads = 0
        self._unfinished = 0

    def run(self, act: Callable[[], object]) -> None:
        """Hand over a function, which must not raise; return at once."""
        with self._lock:
            self._unfinished += 1
            self._queue.put(act)
            if self._unfinished > self._threads and (self._most is None or self._threads < self._most):
                self._start()

    def _start(self) -> None:
        """Start a thread (under the lock). If the system has none left, the next idle one takes the task."""
        try:
            threading.Thread(target=self._serve, name="ayework-doer", daemon=True).start()
            self._threads += 1
        except RuntimeError as refused:
            logger.error(
                "A doer could not start a thread; its task waits for another: %s %s",
                refused,
                logged("thread-not-started"),
            )

    def _serve(self) -> None:
        while (act := self._next()) is not None:
            act()
            with self._lock:
                self._unfinished -= 1
        close_connections()

    def _next(self) -> Callable[[], object] | None:
        """Wait for a function; return None when none came for a while.

        A function that comes at the last moment is not left behind: it is counted under the lock.
        """
        while True:
            try:
                return self._queue.get(timeout=base.LINGER)
            except queue.Empty:
                with self._lock:
                    if self._unfinished < self._threads:
                        self._threads -= 1
                        return None


class Bounded(BaseDoer):
    """Runs at most ``max`` tasks at a time (None: all at once); ``order`` chooses among those that wait.

    It asks for ``buffer`` tasks more than it can run, to have some to choose from.
    """

    def __init__(self, order: Order, max: int | None, capacity: int) -> None:
        super().__init__()
        self._order = order
        self._max = max
        self._capacity = capacity
        self._running: Counter[str] = Counter()
        self._pool = ThreadPool(max)

    def available(self) -> int:
        """Return how many further tasks the doer asks for: its capacity, less the held tasks if limited."""
        if self._max is None:
            return self._capacity
        with self._changed:
            return max(0, self._capacity - self._active - len(self._pending))

    def _hold(self, held: HeldTask) -> None:
        with self._changed:
            self._pending.append(held)
            self._start_next()

    def _start_next(self) -> None:
        """Start as many tasks as may run (under the lock)."""
        while self._pending and (self._max is None or self._active < self._max):
            held = min(self._pending, key=lambda held: self._order(held, self._running))
            self._pending.remove(held)
            self._active += 1
            self._running[held.fairness] += 1
            self._pool.run(partial(self._run, held))

    def _run(self, held: HeldTask) -> None:
        """Run a task in a thread of the pool, then start the next one."""
        run_task(held.task)
        with self._changed:
            self._active -= 1
            self._running -= Counter([held.fairness])  # drops labels without running tasks
            self._start_next()
            self._changed.notify_all()
        self._notify_listeners()
        self._watch.update()


def unlimited(capacity: int = 256) -> Bounded:
    """Return a doer that starts every task at once; ``available()`` is ``capacity``, whatever it holds.

    Raises ValueError for a capacity that is no whole number above 0.
    """
    return Bounded(by_age, None, whole(capacity, "capacity", least=1))


def bounded(order: Order, max: int, buffer: int | None) -> Bounded:
    """Return a doer that runs ``max`` tasks at a time in this order; raise ValueError for other numbers."""
    most = whole(max, "max", least=1)
    return Bounded(order, most, most + (most if buffer is None else whole(buffer, "buffer", least=0)))


def balanced(max: int, buffer: int | None = None) -> Bounded:
    """Return a doer that runs ``max`` tasks at a time, from as many ``fairness`` labels as it can.

    A free slot goes to the label with the fewest running tasks. Among equal labels the task with the highest
    priority starts first, then the oldest. Tasks without a label count as one label. ``buffer`` (by default
    ``max``) is the number of further tasks that the doer requests, to choose from them.

    Raises ValueError for numbers it cannot use.
    """
    return bounded(by_balance, max, buffer)


def priority(max: int, buffer: int | None = None) -> Bounded:
    """Return a doer that runs ``max`` tasks at a time, those of the highest priority first, then the oldest.

    See balanced() for ``buffer``.
    """
    return bounded(by_priority, max, buffer)


def age(max: int, buffer: int | None = None) -> Bounded:
    """Return a doer that runs ``max`` tasks at a time, the oldest first. See balanced() for ``buffer``."""
    return bounded(by_age, max, buffer)
