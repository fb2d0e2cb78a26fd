"""A task that a doer holds."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from datetime import datetime

from django_ayework.doers import seams
from django_ayework.doers.protocol import Hints, Task
from django_ayework.rules.backoff import is_whole
from django_ayework.rules.durations import require_aware

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Held:
    """A task with what is known of it, and its place in the order of submitting."""

    task: Task
    fairness: str
    priority: int
    created_at: datetime
    key: str = ""
    number: int = field(default_factory=lambda: next(_numbers))

    @property
    def hints(self) -> Hints:
        """What is known of it, for others."""
        return Hints(fairness=self.fairness, priority=self.priority, created_at=self.created_at)


def held_of(task: Task, fairness: str | None, priority: int, created_at: datetime | None) -> Held:
    """Return a submitted task; raise TypeError or ValueError for what could not be compared later."""
    if not callable(task):
        raise TypeError(f"expected task to be a function without arguments, got: {task!r}.")
    if not is_whole(priority):
        raise TypeError(f"expected priority to be a whole number, got: {priority!r}.")
    moment = seams.now() if created_at is None else require_aware(created_at, "created_at")
    return Held(task=task, fairness=fairness or "", priority=priority, created_at=moment)
