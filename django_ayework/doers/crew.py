"""Threads, started as they are needed, that end when nothing has come for a while."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from django_ayework.doers import seams

logger = logging.getLogger("django_ayework")

#: Seconds an idle thread waits for something to do.
LINGER = 10.0


class Crew:
    """Runs what it is given at once, each in a thread of its own; of at most ``most``, if that is said."""

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._inbox: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._threads = 0
        self._unfinished = 0

    def run(self, act: Callable[[], object]) -> None:
        """Hand over; return at once. ``act`` must not raise."""
        with self._lock:
            self._unfinished += 1
            self._inbox.put(act)
            if self._unfinished > self._threads and (self._most is None or self._threads < self._most):
                self._start()

    def _start(self) -> None:
        """Start a thread (under the lock). If the system has none left, the next that is free takes it."""
        thread = threading.Thread(target=self._serve, name="ayework-doer", daemon=True)
        try:
            thread.start()
            self._threads += 1
        except RuntimeError as refused:
            logger.error("A doer could not start a thread; its task waits for another: %s", refused)

    def _serve(self) -> None:
        """Do one thing after the other."""
        while (act := self._next()) is not None:
            act()
            with self._lock:
                self._unfinished -= 1
        seams.leave()

    def _next(self) -> Callable[[], object] | None:
        """Wait for something to do; None when nothing came. What came just then is not left behind."""
        while True:
            try:
                return self._inbox.get(timeout=LINGER)
            except queue.Empty:
                with self._lock:
                    if self._unfinished < self._threads:
                        self._threads -= 1
                        return None
