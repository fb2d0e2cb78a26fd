"""Whose turn it is, among the threads of a worker that can only get in each other's way.

On SQLite the threads that claim, run and settle have one interpreter and one writer's lock between them, and
no server that works meanwhile. Left alone, each quick work that writes or reads a byte wakes a thread that
waits for the interpreter and does not get it, which costs as much as running the work.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeAlias

from django_ayework.store.database import connection

#: Seconds that a turn may last. Whoever has it for longer is at a work that takes its time, and needs none.
PATIENCE = 0.03

Act: TypeAlias = Callable[[], object]


class Place:
    """A thread that waits in line."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.called = threading.Lock()
        self.called.acquire()


class Turns:
    """One thread at a time, in the order in which they came; no turn lasts longer than ``PATIENCE`` seconds.

    Nothing depends on it but speed: a turn that is not given back is taken away, by whoever waits.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._line: deque[Place] = deque()
        self._thread: int | None = None  # whose turn it is
        self._since = 0.0
        self._put_off: list[Act] = []  # to its end

    def __enter__(self) -> None:
        """Wait for the turn."""
        with self._lock:
            if self._thread is None:
                self._give_to(threading.get_ident())
                return
            place = Place()
            self._line.append(place)
        patience = PATIENCE
        while patience > 0 and not place.called.acquire(timeout=patience):
            patience = self._take_away(place)

    def __exit__(self, *error: object) -> None:
        """Do what was put off, and pass the turn on; unless it was taken away.

        In this order: whoever has the next turn finds everything done that belongs to this one.
        """
        with self._lock:
            acts = self._ended() if self.is_taken else []
        carry_out(acts)
        with self._lock:
            if self.is_taken:
                self._pass_on()

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits, or will as soon as what was put off is done."""
        return bool(self._line or self._put_off)

    @property
    def is_taken(self) -> bool:
        """Whether it is this thread's turn."""
        return self._thread == threading.get_ident()

    def after(self, act: Act) -> None:
        """Do what wakes a thread that would only wait: once, when the turn of this thread ends, if it has it.

        Woken before, that thread would ask for the interpreter all the time, and be refused.
        """
        if act in self._put_off and self.is_taken:
            return  # whoever takes this turn away does what was put off after that
        with self._lock:
            if self.is_taken:
                if act not in self._put_off:
                    self._put_off.append(act)
                return
        act()

    def _take_away(self, place: Place) -> float:
        """Give a turn that has lasted too long to somebody who waits; return how long it may still last."""
        with self._lock:
            left = self._since + PATIENCE - time.monotonic()
            if place not in self._line:
                return 0.0  # it was called just now
            if left > 0:
                return left
            acts = self._ended()
            self._line.remove(place)
            self._give_to(place.thread)
        carry_out(acts)
        return 0.0

    def _ended(self) -> list[Act]:
        """Return what was put off to the end of the turn, which is now (under the lock)."""
        acts, self._put_off = self._put_off, []
        return acts

    def _pass_on(self) -> None:
        """Call the next in line (under the lock)."""
        if not self._line:
            self._thread = None
            return
        place = self._line.popleft()
        self._give_to(place.thread)
        place.called.release()

    def _give_to(self, thread: int) -> None:
        """Begin a turn (under the lock)."""
        self._thread, self._since = thread, time.monotonic()


def carry_out(acts: list[Act]) -> None:
    """Do what was put off."""
    for act in acts:
        act()


class NoTurns(nullcontext[Any]):
    """Everybody goes on at any time."""

    is_wanted = is_taken = False

    def after(self, act: Act) -> None:
        """Do it."""
        act()


AnyTurns: TypeAlias = Turns | NoTurns
NO_TURNS = NoTurns()


def turns_of_database() -> AnyTurns:
    """Return how the threads of a worker take turns with this database."""
    return Turns() if connection().vendor == "sqlite" else NO_TURNS
