"""A doer without limits."""

from __future__ import annotations

from datetime import datetime
from functools import partial

from django_ayework.doers import seams
from django_ayework.doers.base import Holder
from django_ayework.doers.checks import whole
from django_ayework.doers.crew import Crew
from django_ayework.doers.held import held_of
from django_ayework.doers.protocol import Task


class Unlimited(Holder):
    """Starts every task at once."""

    def __init__(self, capacity: int = 256) -> None:
        super().__init__()
        self._capacity = whole(capacity, "capacity", least=1)
        self._crew = Crew()

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
            self._crew.run(partial(self._do, held.task))

    def _do(self, task: Task) -> None:
        """Run a task in a thread of the crew."""
        seams.perform(task)
        with self._changed:
            self._active -= 1
            self._changed.notify_all()
        self._tell_room()


def unlimited(capacity: int = 256) -> Unlimited:
    """Return a doer that starts every task at once; ``available()`` is ``capacity``, whatever it holds.

    Raises ValueError for a capacity that is no whole number above 0.
    """
    return Unlimited(capacity)
