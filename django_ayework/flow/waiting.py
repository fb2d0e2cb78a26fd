"""Waiting for the end of a work, its group or its chain: by being told, and by looking now and then."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import TracebackType

from django_ayework.flow.news.elsewhere import hear_ended, hears_others
from django_ayework.flow.news.here import waiters
from django_ayework.forking import after_fork_in_child
from django_ayework.rules.durations import Seconds, seconds
from django_ayework.store.database import in_transaction
from django_ayework.store.rows import WorkRow

#: Waiting looks at the database this often: soon at first, then less and less. Seconds.
FIRST_LOOK = 0.005
SLOWEST_LOOK = 0.25
#: The same while other processes are heard.
SLOWEST_LOOK_WHEN_TOLD = 1.0
#: Seconds between two looks of one who is told that anything may have ended, again and again.
LEAST_BETWEEN = 0.02


class Wait:
    """One wait; ``wake`` is called, in any thread, when it is worthwhile to look again."""

    def __init__(self, wake: Callable[[], object]) -> None:
        self._wake = wake
        self._ids: set[str] = set()
        self._looked_at = 0.0
        self._is_sure = False
        self._hears_others = False

    def __enter__(self) -> Wait:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        waiters.remove(self._ids, self._told)
        if self._hears_others:
            hearing.leave()

    def go_on(self, row: WorkRow) -> None:
        """Note that there is no answer yet: be told of the work from now on, if need be by others.

        Many works end before a second look, and for those no connection is opened.
        """
        self._looked_at, self._is_sure = time.monotonic(), False
        if not self._ids:
            self._ids = {row.id, row.group, row.chain}
            waiters.add(self._ids, self._told)
        elif not self._hears_others and not in_transaction():
            self._hears_others = True
            hearing.join()

    def gap(self) -> float:
        """Return how many seconds to leave before another look."""
        return 0.0 if self._is_sure else self._looked_at + LEAST_BETWEEN - time.monotonic()

    def pauses(self, timeout: Seconds | None) -> Iterator[float | None]:
        """Yield how long to sleep at most after each look; None when the time is over."""
        limit = None if timeout is None else time.monotonic() + seconds(timeout, "timeout")
        pause = FIRST_LOOK
        while True:
            left = pause if limit is None else limit - time.monotonic()
            if left <= 0:
                yield None
                return
            yield min(pause, left)
            slowest = SLOWEST_LOOK_WHEN_TOLD if self._hears_others and hears_others() else SLOWEST_LOOK
            pause = min(pause * 1.5, slowest)

    def _told(self, surely: bool) -> None:
        self._is_sure = self._is_sure or surely
        self._wake()


class AsyncBell:
    """Wakes a coroutine; any thread may ring it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def ring(self) -> None:
        """Wake whoever waits."""
        with suppress(RuntimeError):  # the loop has been closed
            self._loop.call_soon_threadsafe(self._event.set)

    def clear(self) -> None:
        """Forget that it was rung."""
        self._event.clear()

    async def wait(self, seconds: float) -> bool:
        """Wait at most that long; return whether it was rung."""
        try:
            await asyncio.wait_for(self._event.wait(), seconds)
        except TimeoutError:
            return False
        return True


class Hearing:
    """One subscription for all who wait in this process."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew, as in a forked process."""
        self._lock = threading.Lock()
        self._number = 0
        self._end: Callable[[], None] | None = None

    def join(self) -> None:
        """Note one more who waits."""
        with self._lock:
            self._number += 1
            if self._end is None:
                self._end = hear_ended(waiters.tell)

    def leave(self) -> None:
        """Note that one has ended."""
        with self._lock:
            self._number -= 1
            if self._number == 0 and self._end is not None:
                self._end()
                self._end = None


hearing = Hearing()
after_fork_in_child(hearing.forget)
