"""Claimed works in this process: single or gathered into batches, how they are lost, how they failed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence

from django.utils.timezone import localtime

from django_ayework.define.context import AbortReason, AbortSignal
from django_ayework.doers import Doer
from django_ayework.errors import Aborted, AttemptTimeout, AyeworkError
from django_ayework.flow.events import report
from django_ayework.flow.requests import StoredOptions, decode_options
from django_ayework.flow.settle import Settlement
from django_ayework.rules.retry import AttemptDecision
from django_ayework.rules.states import Outcome, Status
from django_ayework.store.locks import Holder, holders_of
from django_ayework.store.rows import WorkRow
from django_ayework.worker.interruption import Interruption

logger = logging.getLogger("django_ayework")


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
        self.lost: AbortReason | None = None  # found out in a transaction of the attempt's own
        #: Called with the work and the reason when it is asked to stop, while an async handler runs.
        self.on_abort: Callable[[Delivery, AbortReason], object] | None = None
        self._interruptions: list[Interruption] = []  # calls of its handler, if that may be interrupted
        self._lock = threading.Lock()

    @property
    def type(self) -> str:
        """The name of the work's type."""
        return self.row.type

    @property
    def deliveries(self) -> tuple[Delivery, ...]:
        """This one, as a batch has many."""
        return (self,)

    @property
    def has_own_lease(self) -> bool:
        """Whether the work has a lease of its own, which was not written yet."""
        return self.renewed_at == float("-inf")

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
        """Tell whether the lease was over by then; the work is ours until another worker takes it."""
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
        """Return the error that tells why the attempt was asked to stop."""
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
            self._interruptions[-1].interrupt()

    def end_interruptions(self) -> bool:
        """Forget the exceptions that were raised inside the handler; return whether there were any."""
        arrived = [each for each in self._interruptions if each.arrived is not None]
        for each in arrived:
            each.arrived = None
        return bool(arrived)

    def __str__(self) -> str:
        return f"work {self.row.id} ({self.row.type})"


class Batch:
    """Deliveries of one batch type, which run together in one slot."""

    def __init__(self, deliveries: Iterable[Delivery]) -> None:
        self.deliveries = tuple(deliveries)
        self._runs: bool | None = None

    @property
    def type(self) -> str:
        """The name of the type."""
        return self.deliveries[0].row.type

    def start(self) -> bool:
        """Mark the attempts as started, once; False when none is left to run.

        Works that were given back, or lost while they waited, are left out.
        """
        if self._runs is None:
            started = [each.start() for each in self.deliveries if not each.signal.aborted]
            self._runs = any(started)
        return self._runs

    def __str__(self) -> str:
        return f"a batch of {len(self.deliveries)} {self.type}"


# --- losses -----------------------------------------------------------------------------------------------


def loss_of(delivery: Delivery, holder: Holder | None) -> AbortReason | None:
    """Return why a work is not ours any more; None when it still is (its row was only locked)."""
    if delivery.settled:
        return None
    if holder is None:
        return AbortReason.NOT_FOUND
    if holder.status == Status.CANCELLED:
        return AbortReason.CANCELLED
    if holder.status in (Status.SUCCESS, Status.DEAD):
        return AbortReason.ALREADY_COMPLETED
    if (holder.delivery, holder.worker) != (delivery.row.delivery, delivery.row.worker):
        return AbortReason.TAKEN_BY_ANOTHER_WORKER
    return None


def abort_lost(doubtful: Sequence[Delivery]) -> None:
    """Abort the attempts of those works that are not ours any more; one whose row is only locked stays."""
    holders = holders_of(delivery.row.id for delivery in doubtful) if doubtful else {}
    for delivery in doubtful:
        reason = loss_of(delivery, holders.get(delivery.row.id))
        if reason is not None and not delivery.ended:
            delivery.abort(reason)


def abort_lost_waiting(waiting: Iterable[Delivery], trusted_for: float) -> None:
    """Abort those of these works that were cancelled, completed or lost while they waited to run.

    Works claimed less than ``trusted_for`` seconds ago are not checked. An error is only reported: the
    outcome of a work that is not ours is refused anyway.
    """
    before = time.monotonic() - trusted_for
    doubtful = [delivery for delivery in waiting if delivery.claimed_at < before]
    try:
        abort_lost(doubtful)
    except Exception as error:
        report(error, "queue", f"{len(doubtful)} works could not be looked at before they run")


def log_refused(deliveries: Sequence[Delivery]) -> None:
    """Log that outcomes came too late. After a cancellation that is to be expected, so it is no warning."""
    cancelled = {each.row.id for each in deliveries if each.signal.reason is AbortReason.CANCELLED}
    unclear = [each.row.id for each in deliveries if each.row.id not in cancelled]
    try:
        holders = holders_of(unclear) if unclear else {}
        cancelled |= {id for id, holder in holders.items() if holder.status == Status.CANCELLED}
    except Exception as error:
        report(error, "queue", f"{len(unclear)} works could not be looked up", brief=True)
    for delivery in deliveries:
        if delivery.row.id in cancelled:
            logger.info("The outcome of work %s came too late: the work was cancelled.", delivery.row.id)
        else:
            logger.warning(
                "The outcome of work %s came too late: somebody else has moved the work.", delivery.row.id
            )


def warn_if_late(delivery: Delivery, act: str) -> None:
    """Log that a work was, say, "settled" although its lease had lapsed: nobody else had taken it."""
    if delivery.has_lapsed(time.monotonic()):
        logger.warning(
            "The lease of work %s had lapsed when it was %s; nobody had taken the work.", delivery.row.id, act
        )


# --- failures ---------------------------------------------------------------------------------------------


def log_failures(settlements: Iterable[Settlement], moved: Collection[str]) -> None:
    """Log each failed attempt that was written (``moved`` are their works); a deferral is none."""
    for settlement in settlements:
        ending = settlement.ending
        was_written = settlement.row.id in moved
        if was_written and isinstance(ending, AttemptDecision) and ending.outcome is not Outcome.DEFERRED:
            log_failure(settlement, ending)


def log_failure(settlement: Settlement, decision: AttemptDecision) -> None:
    """Log one with its traceback: a warning if the work is tried again, an error if it is dead."""
    row = settlement.row
    attempt = row.attempt if decision.counts else row.attempt - 1
    of = f"attempt {attempt} of {decode_options(row.options).retry.attempts}"
    error = "\n".join(filter(None, (decision.error, settlement.traceback.rstrip())))
    if decision.run_at is None:
        logger.error("Work %s (%s) is dead (%s, %s): %s", row.id, row.type, decision.reason, of, error)
    else:
        again = localtime(decision.run_at).strftime("%Y-%m-%d %H:%M:%S")
        logger.warning(
            "Work %s (%s) failed (%s), and is tried again at %s: %s", row.id, row.type, of, again, error
        )
