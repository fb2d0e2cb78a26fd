"""What a doer is, and what all doers share."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, TypeAlias, runtime_checkable

from django_ayework.doers import providers
from django_ayework.doers.threads import Alarm, Alarms, ThreadAlarm
from django_ayework.rules.backpressure import BacklogInfo, Episode
from django_ayework.rules.durations import require_aware
from django_ayework.rules.retry import is_whole

# --- protocol ---
# What a doer is.

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

        ``fairness`` is its label, a larger ``priority`` is sooner, ``created_at`` (aware) is when it
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


# --- held ---
# A task that a doer holds.

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
    moment = providers.now() if created_at is None else require_aware(created_at, "created_at")
    return Held(task=task, fairness=fairness or "", priority=priority, created_at=moment)


# --- checks ---
# What doers can be built with.


def whole(value: int, name: str, *, least: int) -> int:
    """Return a whole number that is not too small.

    >>> whole(0, "max", least=1)
    Traceback (most recent call last):
    ...
    ValueError: expected max to be a whole number, 1 or more, got: 0.
    """
    if not is_whole(value) or value < least:
        raise ValueError(f"expected {name} to be a whole number, {least} or more, got: {value!r}.")
    return value


# --- watch ---
# Telling that tasks pile up in a doer.

#: How many tasks run, and how many wait.
Load: TypeAlias = Callable[[], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Told:
    """An episode of backlog, and the policy that reports it."""

    episode: Episode
    tell: Callable[[BacklogInfo], object]


class BacklogWatch:
    """Follows the tasks of a doer, and reports a backlog once some have waited for too long.

    The doer calls ``look`` whenever its number of tasks changes. Without a policy nothing is set up.
    """

    def __init__(
        self, load: Load, alarms: Alarms = ThreadAlarm, seconds: Callable[[], float] = time.monotonic
    ) -> None:
        self._load = load
        self._seconds = seconds
        self._lock = threading.Lock()
        self._alarm: Alarm = alarms(self._ring)
        self._current: Told | None = None

    def look(self) -> None:
        """Begin or end an episode, as there are tasks waiting or none.

        Never called under the doer's lock, because the load is read under ours: of two looks at the same
        moment, the later one then sees what is true.
        """
        try:
            with self._lock:
                _, queued = self._load()
                if queued and self._current is None:
                    self._begin()
                elif not queued and self._current is not None:
                    self._current = None
                    self._alarm.cancel()
        except Exception as error:
            providers.report(error, "the backlog of a doer could not be watched")

    def _begin(self) -> None:
        """Begin an episode, if there is a policy that reports it."""
        policy = providers.providers.backlog_policy()
        if policy is not None:
            self._current = Told(Episode(self._seconds(), policy.after, policy.every), policy.tell)
            self._alarm.set(policy.after)

    def _ring(self) -> None:
        """Tell, if it is still so, and see when to tell again."""
        with self._lock:
            active, queued = self._load()
            if self._current is None or not queued:
                return
            current, now = self._current, self._seconds()
            behind_for = current.episode.told(now)
            if current.episode.due_at is not None:
                self._alarm.set(max(0.0, current.episode.due_at - now))
        if behind_for is not None:
            current.tell(BacklogInfo(active=active, queued=queued, behind_for=behind_for))


#: Makes what follows a doer. Tests give one that runs on a clock of their own.
Watch: TypeAlias = Callable[[Load], BacklogWatch]

# --- base ---
# What all doers share: what they hold, and who is told when that changes.


class Holder:
    """Holds tasks that wait and counts those that run, under one lock."""

    def __init__(self, watch: Watch = BacklogWatch) -> None:
        self._changed = threading.Condition()
        self._pending: list[Held] = []
        self._active = 0
        self._listeners: tuple[Callable[[], object], ...] = ()
        self._watch = watch(self._load)

    def drained(self) -> None:
        """Wait until no task is held. Never call it from within a task of the same doer."""
        with self._changed:
            self._changed.wait_for(lambda: not self._active and not self._pending)

    def on_room(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Let this be called, quickly and from any thread, whenever room may have grown.

        Returns a function that forgets the listener.
        """
        with self._changed:
            self._listeners = (*self._listeners, listener)

        def forget() -> None:
            with self._changed:
                self._listeners = tuple(other for other in self._listeners if other is not listener)

        return forget

    def _tell_room(self) -> None:
        """Tell whoever listens; never called under the lock."""
        for listener in self._listeners:
            providers.guarded(listener, "a listener of a doer raised")

    def _load(self) -> tuple[int, int]:
        """Return how many tasks run, and how many wait."""
        with self._changed:
            return self._active, len(self._pending)
