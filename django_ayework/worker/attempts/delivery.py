"""A claimed work in this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from django_ayework.define.signal import AbortReason, AbortSignal
from django_ayework.doers import Doer
from django_ayework.errors import Aborted, AttemptTimeout, AyeworkError
from django_ayework.flow.options import StoredOptions, decode_options
from django_ayework.store.rows import WorkRow
from django_ayework.worker.attempts.interruption import Interruption, forget_connections


class Delivery:
    """A claimed work, from the claim to its settlement. Times are monotonic seconds.

    The claim gave it the lease of the settings; one with a ``lease`` of its own is due for renewal at once.
    """

    __slots__ = (  # there are thousands a second
        "_interruptions", "_lock", "claimed_at", "doer", "ended", "in_batch",
        "lapses_at", "lease", "lost", "on_abort", "options", "ready_at", "renewed_at", "row",
        "settled", "signal", "started_at", "withdrawn",
    )  # fmt: skip

    def __init__(self, row: WorkRow, lease: float) -> None:
        self.row = row
        self.signal = AbortSignal()
        self.options: StoredOptions = decode_options(row.options)
        self.lease = self.options.lease or lease
        self.claimed_at = time.monotonic()
        self.ready_at = self.claimed_at  # later while it gathers with others for a batch
        self.in_batch = False  # takes no slot of its own
        self.doer: Doer | None = None  # runs it, instead of a slot
        self.renewed_at = self.claimed_at if self.lease == lease else float("-inf")
        self.lapses_at = self.claimed_at + lease
        self.started_at: float | None = None
        self.ended = False
        self.withdrawn = False
        self.settled = False  # in a transaction of the attempt's own
        self.lost: AbortReason | None = None  # a transaction of its own met whoever has it
        #: Called with the work and the reason when it is asked to stop, while an async handler runs.
        self.on_abort: Callable[[Delivery, AbortReason], object] | None = None
        self._interruptions: list[Interruption] = []  # calls of its handler, if that may be interrupted
        self._lock = threading.Lock()

    @property
    def has_own_lease(self) -> bool:
        """Whether the work has a lease of its own, which was not written yet."""
        return self.renewed_at == float("-inf")

    @property
    def type(self) -> str:
        """The name of the work's type."""
        return self.row.type

    def start(self) -> bool:
        """Mark the attempt as started; False when it was withdrawn before."""
        with self._lock:
            if self.withdrawn:
                return False
            self.started_at = time.monotonic()
            return True

    def withdraw(self) -> bool:
        """Take the work back unless its attempt has started; return whether that was possible."""
        with self._lock:
            if self.started_at is not None:
                return False
            self.withdrawn = True
            return True

    def renew(self, now: float) -> None:
        """Note that the lease was renewed."""
        self.renewed_at, self.lapses_at = now, now + self.lease

    def has_lapsed(self, now: float) -> bool:
        """Tell whether the lease was over by then; the work is still ours unless somebody has taken it."""
        return now > self.lapses_at

    def is_overtime(self, now: float) -> bool:
        """Tell whether the attempt has run longer than the work's ``timeout``."""
        timeout, started = self.options.timeout, self.started_at
        return timeout is not None and started is not None and now - started > timeout

    def abort(self, reason: AbortReason) -> None:
        """Ask the attempt to stop; an async handler is cancelled."""
        self.signal.abort(reason)
        if (on_abort := self.on_abort) is not None:
            on_abort(self, reason)

    def abort_error(self) -> AyeworkError:
        """Return the error that says why the attempt was asked to stop."""
        if self.signal.reason is AbortReason.TIMEOUT:
            limit = self.options.timeout
            return AttemptTimeout(f"the attempt ran longer than its timeout of {limit} seconds.")
        return Aborted(str(self.signal.reason), id=self.row.id)

    def interruptible(self) -> Interruption:
        """Return a call of the handler that :meth:`interrupt` may interrupt."""
        self._interruptions.append(Interruption(self.signal, self.abort_error))
        return self._interruptions[-1]

    @property
    def is_interruptible(self) -> bool:
        """Whether an abort may be raised inside the handler."""
        return bool(self._interruptions)

    def interrupt(self) -> None:
        """Raise the abort inside the handler, if it is asked to stop and may be interrupted."""
        if self._interruptions and self.signal.aborted:
            self._interruptions[-1].strike()

    def tidy_up(self) -> None:
        """Leave nothing of an interrupted handler to the next work in this thread."""
        if any(interruption.arrived is not None for interruption in self._interruptions):
            forget_connections()
        for interruption in self._interruptions:
            interruption.let_go()

    def __str__(self) -> str:
        return f"work {self.row.id} ({self.row.type})"
