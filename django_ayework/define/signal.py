"""The signal by which a running attempt learns that it should stop."""

from __future__ import annotations

import threading
import time
from enum import StrEnum

from django_ayework.errors import Aborted, AttemptTimeout


class AbortReason(StrEnum):
    """Why an attempt should stop."""

    TIMEOUT = "timeout"  # it ran longer than its type's ``timeout``
    CANCELLED = "cancelled"  # somebody cancelled the work
    TAKEN_BY_ANOTHER_WORKER = "taken_by_another_worker"  # its lease lapsed and another worker has it
    ALREADY_COMPLETED = "already_completed"  # it was completed without this worker
    NOT_FOUND = "not_found"  # its row is gone
    SHUTDOWN = "shutdown"  # the worker stops and the grace is over
    ERROR = "error"  # its lease lapsed as it could not be renewed, or its outcome could not be written


class AbortSignal:
    """Tells a handler to stop; safe to share between threads. It fires once: the first reason stays."""

    __slots__ = ("_event", "_lock", "_reason", "heeded_at")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reason: AbortReason | None = None
        self._event: threading.Event | None = None  # made for the first who waits: few handlers do
        #: When an exception told the handler in its own thread, in monotonic seconds.
        self.heeded_at = float("-inf")

    @property
    def aborted(self) -> bool:
        """Whether the attempt should stop."""
        return self._reason is not None

    @property
    def reason(self) -> AbortReason | None:
        """Why it should stop, or None."""
        return self._reason

    def wait(self, seconds: float | None = None) -> bool:
        """Block until the signal fires or the time is over; return whether it fired."""
        with self._lock:
            if self._event is None:
                self._event = threading.Event()
            if self._reason is not None:
                return True
        return self._event.wait(seconds)

    def raise_if_aborted(self) -> None:
        """Raise :class:`AttemptTimeout` for a timeout and :class:`Aborted` for any other reason."""
        if not self.aborted:
            return
        self.heed()
        if self._reason is AbortReason.TIMEOUT:
            raise AttemptTimeout
        raise Aborted(str(self._reason))

    def heed(self) -> None:
        """Note that the handler is being told, so that nobody interrupts it at once to tell it again."""
        self.heeded_at = time.monotonic()

    def abort(self, reason: AbortReason) -> None:
        """Fire the signal, unless it fired before (the engine calls this)."""
        with self._lock:
            if self._reason is None:
                self._reason = reason
                if self._event is not None:
                    self._event.set()
