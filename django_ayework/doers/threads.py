"""Threads for doers: a pool that grows with demand, and timers."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Protocol, TypeAlias

from django_ayework.doers import providers

# --- crew ---
# Threads, started as they are needed, that end when nothing has come for a while.

logger = logging.getLogger("django_ayework")

#: Seconds an idle thread waits for something to do.
LINGER = 10.0


class ThreadPool:
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
        providers.leave()

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


# --- alarm ---
# Something that is done after a while, in a thread of its own.

#: Seconds an idle thread waits to be set again.
#: Seconds after which it rings in any case: no timer takes every number, and a ring too many costs nothing.
LONGEST = 3600.0


class Alarm(Protocol):
    """One timer: it rings once for each time it was set, never two rings at the same moment."""

    def set(self, delay: float) -> None:
        """Ring after this many seconds, or sooner if it was set to ring sooner; return at once."""
        ...

    def cancel(self) -> None:
        """Do not ring."""
        ...


#: Makes an alarm that calls this when it rings. Tests give one that runs on a clock of their own.
Alarms: TypeAlias = Callable[[Callable[[], object]], Alarm]


class ThreadAlarm:
    """An alarm with a thread, which is there only while it is used."""

    def __init__(self, ring: Callable[[], object]) -> None:
        self._ring = ring
        self._told = threading.Condition()
        self._due_at: float | None = None
        self._is_served = False

    def set(self, delay: float) -> None:
        """Ring after this many seconds, or sooner if it was set to ring sooner."""
        due_at = time.monotonic() + min(delay, LONGEST)
        with self._told:
            if self._due_at is None or due_at < self._due_at:
                self._due_at = due_at
                self._told.notify() if self._is_served else self._start()

    def cancel(self) -> None:
        """Do not ring."""
        with self._told:
            self._due_at = None

    def _start(self) -> None:
        """Start the thread (under the lock). If the system has none left, the next setting tries again."""
        try:
            threading.Thread(target=self._serve, name="ayework-alarm", daemon=True).start()
            self._is_served = True
        except RuntimeError as refused:
            self._due_at = None
            logger.error("An alarm could not start its thread: %s", refused)

    def _serve(self) -> None:
        """Ring whenever it is time."""
        while self._is_time():
            providers.guarded(self._ring, "an alarm of a doer raised")
            providers.tidy()
        providers.leave()

    def _is_time(self) -> bool:
        """Wait until it is time to ring; False when nobody has set it for a while."""
        with self._told:
            gives_up_at = time.monotonic() + LINGER
            while True:
                now = time.monotonic()
                if self._due_at is not None and now >= self._due_at:
                    self._due_at = None
                    return True
                if self._due_at is None and now >= gives_up_at:
                    self._is_served = False
                    return False
                self._told.wait((self._due_at or gives_up_at) - now)
