"""What all doers share: what they hold, and who is told when that changes."""

from __future__ import annotations

import threading
from collections.abc import Callable

from django_ayework.doers import seams
from django_ayework.doers.held import Held
from django_ayework.doers.watch import BacklogWatch, Watch


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
            seams.guarded(listener, "a listener of a doer raised")

    def _load(self) -> tuple[int, int]:
        """Return how many tasks run, and how many wait."""
        with self._changed:
            return self._active, len(self._pending)
