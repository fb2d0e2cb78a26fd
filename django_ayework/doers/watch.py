"""Telling that tasks pile up in a doer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from django_ayework.doers import seams
from django_ayework.doers.alarm import Alarm, Alarms, ThreadAlarm
from django_ayework.rules.backlog import BacklogInfo, Episode

#: How many tasks run, and how many wait.
Load: TypeAlias = Callable[[], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Told:
    """An episode, and whom to tell of it."""

    episode: Episode
    tell: Callable[[BacklogInfo], object]


class BacklogWatch:
    """Follows what a doer holds; tells whoever wants to know once some of it has waited for too long.

    The doer calls ``look`` whenever it holds more or less. Nothing is set up while nobody wants to know.
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
            seams.report(error, "the backlog of a doer could not be watched")

    def _begin(self) -> None:
        """Begin an episode, if anybody is to be told of it."""
        policy = seams.connections.backlog_policy()
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
