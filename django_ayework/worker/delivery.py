"""A claimed work in this process."""

from __future__ import annotations

import threading
import time
from typing import Any

from django_ayework.define.signal import AbortReason, AbortSignal
from django_ayework.flow.options import StoredOptions, decode_options
from django_ayework.store.rows import WorkRow


class Delivery:
    """A claimed work, from the claim to its settlement. Times are monotonic seconds.

    The claim gave it the lease of the settings; one with a ``lease`` of its own is due for renewal at once.
    """

    def __init__(
        self,
        row: WorkRow,
        lease: float,
        dependents: tuple[str, ...] = (),
        blockers: tuple[Any, ...] = (),
    ) -> None:
        self.row = row
        self.dependents = dependents
        self.blockers = blockers
        self.signal = AbortSignal()
        self.options: StoredOptions = decode_options(row.options)
        self.lease = self.options.lease or lease
        self.claimed_at = time.monotonic()
        self.renewed_at = self.claimed_at if self.lease == lease else float("-inf")
        self.started_at: float | None = None
        self.ended = False
        self.withdrawn = False
        self.settled = False  # in a transaction of the attempt's own
        self.lost: AbortReason | None = None  # a transaction of its own met whoever has it
        self._lock = threading.Lock()

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

    def is_overtime(self, now: float) -> bool:
        """Tell whether the attempt has run longer than the work's ``timeout``."""
        timeout, started = self.options.timeout, self.started_at
        return timeout is not None and started is not None and now - started > timeout

    def abort(self, reason: AbortReason) -> None:
        """Ask the attempt to stop."""
        self.signal.abort(reason)
