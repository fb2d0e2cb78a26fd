"""Waking a worker: by commits of its own process, and by what it hears of others."""

from __future__ import annotations

import threading
from collections.abc import Callable

from django_ayework.flow.news.elsewhere import hear_due, hear_revoked, rest
from django_ayework.flow.news.here import add_due_listener, remove_due_listener
from django_ayework.rules.news import Due
from django_ayework.store.lanes import Lane
from django_ayework.worker.claiming.scope import Scope
from django_ayework.worker.wake import Wake


class Told:
    """What a worker was told to be due, until it takes that into account. Any thread may tell it."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._lock = threading.Lock()
        self._due = Due()
        self._known = (self._due, self._due)  # what it heard last, and what of it is this worker's affair

    def add(self, due: Due) -> bool:
        """Note what is due; return whether that is new, and any of it this worker's affair."""
        mine = self._mine(due)
        with self._lock:
            before = self._due
            self._due = before | mine
            return self._due != before

    def take(self) -> Due:
        """Return what it was told since it was asked last."""
        if not self._due:
            return self._due
        with self._lock:
            due, self._due = self._due, Due()
            return due

    def _mine(self, due: Due) -> Due:
        """Return what of it is this worker's affair; at rest the same is heard again and again."""
        known, mine = self._known
        if known is not due:
            mine = due if due.places is None else Due(self._served(due.places), due.start)
            self._known = due, mine
        return mine

    def _served(self, places: frozenset[tuple[str, str]]) -> frozenset[tuple[str, str]]:
        return frozenset(place for place in places if self._scope.serves(Lane(*place)))


class Waking:
    """Lets a worker hear of due works and of revoked ones, from when it opens until it closes."""

    def __init__(self, told: Told, wake: Wake, doubt: Callable[[frozenset[str] | None], object]) -> None:
        self._told = told
        self._wake = wake
        self._doubt = doubt
        self._forget: list[Callable[[], None]] = []

    def open(self) -> None:
        """Begin to hear."""
        add_due_listener(self._hear)
        self._forget = [hear_due(self._hear), hear_revoked(self._doubt)]

    def wait(self, seconds: float) -> None:
        """Wait at most that long until woken."""
        self._wake.wait(seconds)

    def close(self) -> None:
        """Hear no more."""
        remove_due_listener(self._hear)
        for forget in self._forget:
            forget()

    def rest(self) -> None:
        """Leave no thread or connection behind that nobody else needs."""
        rest()

    def _hear(self, due: Due) -> None:
        """Wake the worker if it is concerned."""
        if self._told.add(due):
            self._wake.set()
