"""Which of the tasks that a doer holds is next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Protocol, TypeAlias, TypeVar


class Waiting(Protocol):
    """A task that waits to be started."""

    @property
    def fairness(self) -> str:
        """Who it is for; "" for nobody in particular."""
        ...

    @property
    def priority(self) -> int:
        """Larger is sooner."""
        ...

    @property
    def created_at(self) -> datetime:
        """When it was queued."""
        ...

    @property
    def number(self) -> int:
        """Its place in the order in which the doer was given its tasks."""
        ...


W = TypeVar("W", bound=Waiting)

#: An order: what to sort by, given how many tasks of each fairness label run.
Order: TypeAlias = Callable[[Waiting, Mapping[str, int]], tuple[Any, ...]]


def by_balance(task: Waiting, running: Mapping[str, int]) -> tuple[Any, ...]:
    """Order by how few tasks of the same label run, then by priority, then by age."""
    return running.get(task.fairness, 0), *by_priority(task, running)


def by_priority(task: Waiting, running: Mapping[str, int]) -> tuple[Any, ...]:
    """Order by priority, the higher first, then by age."""
    return -task.priority, *by_age(task, running)


def by_age(task: Waiting, running: Mapping[str, int] | None = None) -> tuple[Any, ...]:
    """Order by age, the older first; of one moment, the one that came first."""
    return task.created_at, task.number


def next_of(waiting: Iterable[W], order: Order, running: Mapping[str, int]) -> W:
    """Return the task whose turn it is."""
    return min(waiting, key=lambda task: order(task, running))
