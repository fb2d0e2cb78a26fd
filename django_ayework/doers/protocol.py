"""What a doer is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeAlias, runtime_checkable

#: What a doer runs; what it returns is dropped.
Task: TypeAlias = Callable[[], object]


@runtime_checkable
class Doer(Protocol):
    """Runs tasks in threads of its own, within its limits. One object serves one process."""

    def available(self) -> int:
        """Return how many more tasks are welcome now; more are accepted all the same, and wait."""
        ...

    def submit(
        self,
        task: Task,
        fairness: str | None = None,
        priority: int = 0,
        created_at: datetime | None = None,
    ) -> None:
        """Accept a task and return at once; what it raises is reported and swallowed.

        ``fairness`` says whom it is for, a larger ``priority`` is sooner, ``created_at`` (aware) is when it
        was queued, by default now. What of these counts depends on the doer.
        """
        ...

    def drained(self) -> None:
        """Wait until no task is held, running or not. Never call it from within a task of the same doer."""
        ...


@runtime_checkable
class TellsRoom(Protocol):
    """A doer that tells when it has room again, so that nobody need ask over and over. All of ours do."""

    def on_room(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Let this be called, quickly and from any thread, whenever room may have grown.

        Returns a function that forgets the listener.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Hints:
    """What is known of a task: what a ``key`` function of ``rate_limited`` is given."""

    fairness: str
    priority: int
    created_at: datetime
