"""The watchdog: looks after the time of attempts, and after the threads of the engine."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from django_ayework.conf import get_settings
from django_ayework.define.context import AbortReason
from django_ayework.heartbeat import Heartbeat
from django_ayework.store.sessions import cut
from django_ayework.worker import bounds
from django_ayework.worker.in_flight import InFlight

logger = logging.getLogger("django_ayework")

#: Seconds between two looks.
LOOK_EVERY = 0.25


class Watched(Protocol):
    """A thread that was started: its heartbeat, and whether it has ended before its time."""

    heartbeat: Heartbeat

    @property
    def is_gone(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class ThreadSigns:
    """How a thread is: its name, and for how many seconds it has been silent; None if it has ended."""

    name: str
    silence: float | None


class Watchdog:
    """Looks, again and again: whoever calls :meth:`look` must not wait for the database himself.

    A thread whose statement gets no answer is given a new connection: the old one is cut, so that the driver
    raises in that thread. A thread that does not come back by that is lost.
    """

    def __init__(self, in_flight: InFlight, threads: Callable[[], Iterable[Watched]]) -> None:
        self._in_flight = in_flight
        self._threads = threads
        self._cut_at: dict[Watched, float] = {}
        #: Which thread cannot be brought back, and why; empty while there is none.
        self.lost = ""

    def look(self) -> None:
        """Look once after everything."""
        self._watch_time()
        for thread in self._threads():
            self._look_after(thread)

    def signs(self) -> list[ThreadSigns]:
        """Return how the threads are."""
        return [
            ThreadSigns(each.heartbeat.name, None if each.is_gone else each.heartbeat.silence())
            for each in self._threads()
        ]

    def _watch_time(self) -> None:
        """Abort attempts that have run out of time; interrupt handlers that may be interrupted."""
        now = time.monotonic()
        for delivery in self._in_flight.all():
            if delivery.is_overtime(now):
                delivery.abort(AbortReason.TIMEOUT)
            delivery.interrupt()

    def _look_after(self, thread: Watched) -> None:
        """Cut the connection of a thread that has been silent for longer than a statement may take."""
        timeout, silence = get_settings().statement_timeout, thread.heartbeat.silence()
        if thread.is_gone:
            self._lose(f"the thread {thread.heartbeat.name!r} has ended")
        if timeout is None or silence < timeout + bounds.ANSWER or thread.heartbeat.is_in_project_code:
            self._cut_at.pop(thread, None)
            return
        if thread not in self._cut_at:
            self._cut_at[thread] = time.monotonic()
            self._cut(thread, silence)
        elif time.monotonic() - self._cut_at[thread] > bounds.STALL:
            self._lose(f"the thread {thread.heartbeat.name!r} has not come back for {silence:.0f} s")

    def _cut(self, thread: Watched, silence: float) -> None:
        if cut(thread.heartbeat.socket):
            logger.error(
                "The database has not answered the thread %r for %.0f s; the connection is replaced.",
                thread.heartbeat.name, silence,
            )  # fmt: skip

    def _lose(self, why: str) -> None:
        if not self.lost:
            self.lost = why
            logger.critical("%s, so this worker cannot go on. Start it again.", why.capitalize())
