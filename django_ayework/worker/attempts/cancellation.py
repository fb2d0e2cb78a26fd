"""Cancelling the task that awaits an async handler."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType

from django_ayework.define.signal import AbortReason
from django_ayework.worker.attempts.delivery import Delivery
from django_ayework.worker.attempts.interruption import AGAIN_AFTER


class Cancellation:
    """Cancels the current task once all works of its handler are asked to stop, or their time is over.

    The signal fires before, so the handler that meets the CancelledError can read the reason. With the reason
    ``error`` the work is still its own, and its handler goes on. A handler that an exception of the signal's
    has told is left to end by itself for a while.
    """

    def __init__(self, deliveries: Sequence[Delivery], timeout: float | None) -> None:
        #: Whether the task was cancelled here.
        self.was_requested = False
        self._deliveries = deliveries
        self._timeout = timeout
        self._going_on = {delivery.row.id for delivery in deliveries}
        self._is_open = False

    def __enter__(self) -> Cancellation:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._timer = None if self._timeout is None else self._loop.call_later(self._timeout, self._expire)
        self._is_open = True
        for delivery in self._deliveries:
            delivery.on_abort = self.note
            if delivery.signal.reason is not None:
                self.note(delivery, delivery.signal.reason)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_open = False
        for delivery in self._deliveries:
            delivery.on_abort = None
        if self._timer is not None:
            self._timer.cancel()
        if self.was_requested and self._task is not None:
            self._task.uncancel()

    def note(self, delivery: Delivery, reason: AbortReason) -> None:
        """Note that a work is asked to stop, in any thread."""
        if reason is AbortReason.ERROR:
            return
        self._going_on.discard(delivery.row.id)
        if not self._going_on:
            with suppress(RuntimeError):  # the loop was closed, so the handler has ended
                self._loop.call_soon_threadsafe(self._cancel)

    def _expire(self) -> None:
        """Ask all works to stop, as the time is over."""
        for delivery in self._deliveries:
            delivery.abort(AbortReason.TIMEOUT)

    def _cancel(self) -> None:
        """Cancel the task, once and on its loop, unless the handler has ended."""
        if not self._is_open or self.was_requested or self._task is None:
            return
        heeded_at = max(delivery.signal.heeded_at for delivery in self._deliveries)
        patience = heeded_at + AGAIN_AFTER - time.monotonic()
        if patience > 0:
            self._loop.call_later(patience, self._cancel)
            return
        self.was_requested = True
        self._task.cancel()
