"""Whose turn it is, among the threads of a worker that can only get in each other's way.

On SQLite the threads that claim, run and settle have one interpreter and one writer's lock between them, and
no server that works meanwhile. Left alone, each quick work that writes or reads a byte wakes a thread that
waits for the interpreter and does not get it, which costs as much as running the work.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import nullcontext
from typing import Any, TypeAlias

from django_ayework.store.database import connection

#: Seconds to wait for a turn. Whoever has it for longer is at a work that takes its time, and needs none.
PATIENCE = 0.02


class Place:
    """A thread that waits in line."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.called = threading.Lock()
        self.called.acquire()


class Turns:
    """One thread at a time, in the order in which they came; nobody waits longer than ``PATIENCE`` seconds.

    Nothing depends on it but speed: a turn that is not given back is taken away.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._line: deque[Place] = deque()
        self._thread: int | None = None  # whose turn it is

    def __enter__(self) -> None:
        """Wait for the turn."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.get_ident()
                return
            place = Place()
            self._line.append(place)
        if not place.called.acquire(timeout=PATIENCE):
            self._take_away(place)

    def __exit__(self, *error: object) -> None:
        """Pass the turn on, unless it was taken away."""
        with self._lock:
            if self._thread == threading.get_ident():
                self._pass_on()

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits."""
        return bool(self._line)

    def _take_away(self, place: Place) -> None:
        """Give the turn to somebody who has waited long enough, if nobody has done so meanwhile."""
        with self._lock:
            if place in self._line:
                self._line.remove(place)
                self._thread = place.thread

    def _pass_on(self) -> None:
        """Call the next in line (under the lock)."""
        if not self._line:
            self._thread = None
            return
        place = self._line.popleft()
        self._thread = place.thread
        place.called.release()


class NoTurns(nullcontext[Any]):
    """Everybody goes on at any time."""

    is_wanted = False


AnyTurns: TypeAlias = Turns | NoTurns
NO_TURNS = NoTurns()


def turns_of_database() -> AnyTurns:
    """Return how the threads of a worker take turns with this database."""
    return Turns() if connection().vendor == "sqlite" else NO_TURNS
