"""Doers without limits, and doers that run so many tasks at a time."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from functools import partial

from django_ayework.doers import providers
from django_ayework.doers.base import BacklogWatch, Held, Holder, Task, Watch, held_of, whole
from django_ayework.doers.threads import ThreadPool
from django_ayework.rules.controls import Order, by_age, by_balance, by_priority, next_of

# --- unlimited ---
# A doer without limits.


class Unlimited(Holder):
    """Starts every task at once."""

    def __init__(self, capacity: int = 256) -> None:
        super().__init__()
        self._capacity = whole(capacity, "capacity", least=1)
        self._pool = ThreadPool()

    def available(self) -> int:
        """Return the capacity: there is always room."""
        return self._capacity

    def submit(
        self,
        task: Task,
        fairness: str | None = None,
        priority: int = 0,
        created_at: datetime | None = None,
    ) -> None:
        """Start a task; what it raises is reported and swallowed."""
        held = held_of(task, fairness, priority, created_at)
        with self._changed:
            self._active += 1
            self._pool.run(partial(self._do, held.task))

    def _do(self, task: Task) -> None:
        """Run a task in a thread of the crew."""
        providers.perform(task)
        with self._changed:
            self._active -= 1
            self._changed.notify_all()
        self._tell_room()


def unlimited(capacity: int = 256) -> Unlimited:
    """Return a doer that starts every task at once; ``available()`` is ``capacity``, whatever it holds.

    Raises ValueError for a capacity that is no whole number above 0.
    """
    return Unlimited(capacity)


# --- bounded ---
# Doers that run so many tasks at a time, and choose which is next.


class Bounded(Holder):
    """Runs at most ``max`` tasks at a time; of those that wait, ``order`` says which is next.

    It asks for ``buffer`` tasks more than it can run, to have some to choose from.
    """

    def __init__(
        self, order: Order, max: int, buffer: int | None = None, watch: Watch = BacklogWatch
    ) -> None:
        super().__init__(watch)
        self._order = order
        self._max = whole(max, "max", least=1)
        self._capacity = self._max + (self._max if buffer is None else whole(buffer, "buffer", least=0))
        self._running: Counter[str] = Counter()
        self._pool = ThreadPool(self._max)

    def available(self) -> int:
        """Return how many more tasks are welcome: ``max + buffer``, less what is held."""
        with self._changed:
            return max(0, self._capacity - self._active - len(self._pending))

    def submit(
        self,
        task: Task,
        fairness: str | None = None,
        priority: int = 0,
        created_at: datetime | None = None,
    ) -> None:
        """Hold a task until it is its turn; what it raises is reported and swallowed."""
        held = held_of(task, fairness, priority, created_at)
        with self._changed:
            self._pending.append(held)
            self._begin()
        self._watch.look()

    def _begin(self) -> None:
        """Start what there is room for (under the lock)."""
        while self._pending and self._active < self._max:
            held = next_of(self._pending, self._order, self._running)
            self._pending.remove(held)
            self._active += 1
            self._running[held.fairness] += 1
            self._pool.run(partial(self._do, held))

    def _do(self, held: Held) -> None:
        """Run a task in a thread of the crew, then let the next one have its place."""
        providers.perform(held.task)
        with self._changed:
            self._active -= 1
            self._running -= Counter([held.fairness])  # drops labels of which nothing runs any more
            self._begin()
            self._changed.notify_all()
        self._tell_room()
        self._watch.look()


def balanced(max: int, buffer: int | None = None) -> Bounded:
    """Return a doer that runs ``max`` tasks at a time, from as many ``fairness`` labels as it can.

    A free place goes to the label of which the fewest tasks run; of several, to the task of the highest
    priority, then to the oldest. Tasks without a label count as one. ``buffer`` (``max``, unless given) is
    how many tasks more it asks for, to have some to choose from.

    Raises ValueError for numbers it cannot use.
    """
    return Bounded(by_balance, max, buffer)


def priority(max: int, buffer: int | None = None) -> Bounded:
    """Return a doer that runs ``max`` tasks at a time, those of the highest priority first, then the oldest.

    See balanced() for ``buffer``.
    """
    return Bounded(by_priority, max, buffer)


def age(max: int, buffer: int | None = None) -> Bounded:
    """Return a doer that runs ``max`` tasks at a time, the oldest first. See balanced() for ``buffer``."""
    return Bounded(by_age, max, buffer)
