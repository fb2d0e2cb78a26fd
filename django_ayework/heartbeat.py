"""Heartbeats: each thread of the engine shows that it makes progress.

A thread beats before each of its statements and at each turn of its loop, and says how long it will rest.
So a watcher knows how long the thread has been silent, and needs nothing from the thread itself.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any


class Heartbeat:
    """The signs of life of one thread. Moments are monotonic seconds."""

    def __init__(self, name: str) -> None:
        #: The purpose of the thread in words for operators: "claiming".
        self.name = name
        #: The id of the thread, once it has begun.
        self.thread: int | None = None
        #: The socket of the engine's own session in this thread, see ``store.sessions``.
        self.socket: tuple[int, int] | None = None
        #: Whether the thread runs code of the project's: a hook, a receiver, a function of a schedule.
        self.is_in_project_code = False
        self._moved_at = math.inf

    def beat(self, rest: float = 0.0) -> None:
        """Note progress. ``rest`` is how many seconds the thread rests now; infinity: until it is woken."""
        self._moved_at = time.monotonic() + rest

    def silence(self) -> float:
        """Return for how many seconds the thread has made no progress that was to be expected."""
        return max(0.0, time.monotonic() - self._moved_at)

    @contextmanager
    def of_this_thread(self) -> Generator[None]:
        """Let :func:`beat` and :func:`taking_any_time` mean this heartbeat in the calling thread."""
        _thread.heartbeat = self
        self.thread = threading.get_ident()
        self.beat()
        try:
            yield
        finally:
            _thread.heartbeat = None
            self.beat(math.inf)


class _Thread(threading.local):
    """The heartbeat of each thread; None in threads that are not the engine's."""

    heartbeat: Heartbeat | None = None


_thread = _Thread()


def current_heartbeat() -> Heartbeat | None:
    """Return the heartbeat of the calling thread, if it is one of the engine's."""
    return _thread.heartbeat


def beat(rest: float = 0.0) -> None:
    """Note progress of the calling thread, if it is one of the engine's; see :meth:`Heartbeat.beat`."""
    if (heartbeat := _thread.heartbeat) is not None:
        heartbeat.beat(rest)


def beat_before(run: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
    """Beat, then run a statement; an ``execute_wrapper`` of Django's connections."""
    beat()
    return run(sql, params, many, context)


@contextmanager
def taking_any_time() -> Generator[None]:
    """Note that the calling thread runs code of the project's, which may take any time."""
    heartbeat = _thread.heartbeat
    if heartbeat is None:
        yield
        return
    before, heartbeat.is_in_project_code = heartbeat.is_in_project_code, True
    try:
        yield
    finally:
        heartbeat.is_in_project_code = before
        heartbeat.beat()
