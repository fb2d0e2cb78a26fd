"""Works that this process has claimed and not yet settled: their states and losses."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from django_ayework.define.context import AbortReason, AbortSignal
from django_ayework.define.types import registry
from django_ayework.documentation import logged
from django_ayework.doers import Doer
from django_ayework.errors import Aborted, AttemptTimeout, AyeworkError
from django_ayework.flow.hooks import report
from django_ayework.flow.payloads import StoredOptions, decode_options
from django_ayework.logs import logger
from django_ayework.rules.states import Status
from django_ayework.store.leases import Holder, holders_of
from django_ayework.store.rows import WorkRow
from django_ayework.worker.interruption import Interruption


class Delivery:
    """A claimed work, from the claim to its settlement. Times are monotonic seconds.

    The claim, which began at ``claimed_at``, gave it the lease of the settings. One with a ``lease`` of its
    own is due for renewal at once.
    """

    __slots__ = (  # there are thousands a second
        "_interruptions", "_lock", "claimed_at", "doer", "ended", "in_batch", "is_kept",
        "lapses_at", "lease", "lost", "on_abort", "options", "ready_at", "renewed_at", "row",
        "settled", "signal", "started_at", "type", "withdrawn", "work_type",
    )  # fmt: skip

    def __init__(self, row: WorkRow, lease: float, claimed_at: float | None = None) -> None:
        now = time.monotonic()
        self.row = row
        self.type = row.type
        self.work_type = registry.find(row.type)  # None for a type that is unknown here
        self.signal = AbortSignal()
        self.options: StoredOptions = decode_options(row.options)
        self.lease = self.options.lease or lease
        self.claimed_at = now if claimed_at is None else claimed_at
        self.ready_at = now  # later while it gathers with others for a batch
        self.in_batch = False  # takes no slot of its own
        self.doer: Doer | None = None  # runs it, instead of a slot
        self.renewed_at = self.claimed_at if self.lease == lease else float("-inf")
        self.lapses_at = self.claimed_at + lease
        self.started_at: float | None = None
        self.ended = False
        self.withdrawn = self.is_kept = False
        self.settled = False  # in a transaction of the attempt's own
        self.lost: AbortReason | None = None  # found out in a transaction of the attempt's own
        #: Called with the work and the reason when it is asked to stop, while an async handler runs.
        self.on_abort: Callable[[Delivery, AbortReason], object] | None = None
        self._interruptions: list[Interruption] = []  # calls of its handler, if that may be interrupted
        self._lock = threading.Lock()

    @property
    def deliveries(self) -> tuple[Delivery, ...]:
        """This one, as a batch has many."""
        return (self,)

    @property
    def may_start(self) -> bool:
        """Whether the work was neither withdrawn nor, as far as is known, lost while it waited."""
        return not (self.withdrawn or self.signal.aborted)

    @property
    def may_run(self) -> bool:
        """Whether the attempt was started, and the work not lost before."""
        return self.started_at is not None and self.lost is None

    @property
    def is_last_attempt(self) -> bool:
        """Whether the policy allows no further attempt."""
        return self.options.retry.is_last(self.row.attempt)

    @property
    def seconds(self) -> float | None:
        """How long the attempt has run; None if it has not started."""
        return None if self.started_at is None else time.monotonic() - self.started_at

    def start(self) -> bool:
        """Mark the attempt as started; False when the work was withdrawn or lost before."""
        with self._lock:
            if self.may_start:
                self.started_at = time.monotonic()
            return self.started_at is not None

    def keep(self) -> bool:
        """Let nobody withdraw the work, as its last attempt begins; return False if somebody has."""
        with self._lock:
            self.is_kept = not self.withdrawn
            return self.is_kept

    def withdraw(self) -> bool:
        """Take the work back unless its attempt begins; return whether this call has done it."""
        with self._lock:
            if is_free := not (self.withdrawn or self.is_kept or self.started_at is not None):
                self.withdrawn = True
            return is_free

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
        """Return the error for the reason why the attempt was asked to stop."""
        if self.signal.reason is AbortReason.TIMEOUT:
            limit = self.options.timeout
            return AttemptTimeout(f"the attempt ran longer than its timeout of {limit} seconds.")
        return Aborted(str(self.signal.reason), id=self.row.id)

    def interruptible(self) -> Interruption:
        """Return a call of the handler that :meth:`interrupt` may interrupt."""
        self._interruptions.append(Interruption(self.signal, self.abort_error))
        return self._interruptions[-1]

    def interrupt(self) -> bool:
        """Raise the abort inside the handler if it is asked to stop; return whether that is possible."""
        if self._interruptions and self.signal.aborted:
            self._interruptions[-1].interrupt()
        return bool(self._interruptions)

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

    #: A batch takes its slot even if all of its works were given back.
    withdrawn = False

    def __init__(self, deliveries: Iterable[Delivery]) -> None:
        self.deliveries = tuple(deliveries)
        self.type = self.deliveries[0].type
        self.work_type = self.deliveries[0].work_type
        self._runs: bool | None = None

    @property
    def may_start(self) -> bool:
        """Whether any work is left to run."""
        return any(each.may_start for each in self.deliveries)

    def start(self) -> bool:
        """Mark the attempts as started, once, without works that may not start; False when none is left."""
        if self._runs is None:
            starts = [each.start() for each in self.deliveries]
            self._runs = any(starts)
        return self._runs

    def __str__(self) -> str:
        return f"a batch of {len(self.deliveries)} {self.type}"


def loss_of(delivery: Delivery, holder: Holder | WorkRow | None) -> AbortReason | None:
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


def losses_of(doubtful: Sequence[Delivery]) -> list[tuple[Delivery, AbortReason | None]]:
    """Return these works, each with why it is not ours any more; with None where it still is."""
    holders = holders_of(delivery.row.id for delivery in doubtful) if doubtful else {}
    return [(delivery, loss_of(delivery, holders.get(delivery.row.id))) for delivery in doubtful]


def abort_lost(doubtful: Sequence[Delivery]) -> None:
    """Abort the attempts of those works that are not ours any more; one whose row is only locked stays."""
    for delivery, reason in losses_of(doubtful):
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


def warn_if_late(delivery: Delivery, act: str) -> None:
    """Log that a work was, say, "settled" although its lease had lapsed: nobody else had taken it."""
    if delivery.has_lapsed(time.monotonic()):
        logger.warning(
            "The lease of work %s had lapsed when it was %s; nobody had taken the work. %s",
            delivery.row.id, act, logged("lease-lapsed"),
        )  # fmt: skip


def warn_if_lost(delivery: Delivery) -> None:
    """Log that a work was taken from its attempt, if it was."""
    if (lost := delivery.lost) is not None:
        logger.warning("Work %s was lost while it ran: %s. %s", delivery.row.id, lost, logged("work-lost"))


@dataclass(eq=False)
class InFlight:
    """Claimed works by id; shared by claiming, slots, settling, leases and maintenance.

    ``on_room`` is called when an end may let more works be claimed.
    """

    on_room: Callable[[], None]
    #: Works and batches that doers hold, waiting or running.
    in_doers: int = 0
    #: Attempts made since the start, or to be made.
    attempts: int = 0
    #: An end that leaves as many unfinished, or fewer, calls ``on_room``.
    low_water: int = 0
    _held: dict[str, Delivery] = field(default_factory=dict)
    #: Works and batches that were ever to take a slot.
    _begun: int = 0
    #: Those of them that have left it: a count, and the latest, which are not counted yet.
    _counted_ends: int = 0
    _ends: deque[None] = field(default_factory=deque)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, deliveries: list[Delivery]) -> None:
        """Note claimed works."""
        with self._lock:
            self._held.update((delivery.row.id, delivery) for delivery in deliveries)
            self._count(deliveries, 1)

    def begin_batch(self, in_doer: bool = False) -> None:
        """Note that works gather for a batch, which will take a slot, or be one task of a doer."""
        with self._lock:
            if in_doer:
                self.in_doers += 1
            else:
                self._begun += 1

    def finish(self, in_doer: bool = False) -> None:
        """Note that a work or a batch has ended; its settlement may still be on its way.

        A slot that ends takes no lock: slots that wait for one another take longer than a quick handler.
        """
        if in_doer:
            with self._lock:
                self.in_doers -= 1
        else:
            self._ends.append(None)
        if in_doer or self.unfinished <= self.low_water:
            self.on_room()

    @property
    def finished(self) -> int:
        """Works and batches that have left their slots.

        Without the lock, and in this order: ends that are counted meanwhile make the sum too high for a
        moment, which claims early. A sum that is too low would let the last end wake nobody.
        """
        return len(self._ends) + self._counted_ends

    @property
    def unfinished(self) -> int:
        """Works and batches that gather, wait for a slot, or run in one."""
        return self._begun - self.finished

    def settle(self, deliveries: list[Delivery]) -> None:
        """Forget works that are settled."""
        with self._lock:
            for delivery in deliveries:
                if self._held.get(delivery.row.id) is delivery:
                    del self._held[delivery.row.id]
            for _ in range(len(self._ends)):
                self._counted_ends += 1  # before it goes, see ``finished``
                self._ends.popleft()
            empty = not self._held
        if empty:
            self.on_room()

    def withdraw(self, is_chosen: Callable[[Delivery], bool] = lambda delivery: True) -> list[Delivery]:
        """Withdraw works that have not started, all or some; return all that wait for their release."""
        with self._lock:
            self._count([each for each in self._held.values() if is_chosen(each) and each.withdraw()], -1)
            return [each for each in self._held.values() if each.withdrawn]

    @property
    def active(self) -> int:
        """How many claimed works and batches have not ended."""
        return self.unfinished + self.in_doers

    def all(self) -> list[Delivery]:
        """Return every work held."""
        with self._lock:
            return list(self._held.values())

    def ids(self) -> set[str]:
        """Return the ids of every work held."""
        with self._lock:
            return set(self._held)

    def abort(self, reasons: Mapping[str, AbortReason]) -> None:
        """Ask attempts of these works to stop, if they run here."""
        with self._lock:
            held = [(self._held[id], reason) for id, reason in reasons.items() if id in self._held]
        for delivery, reason in held:
            delivery.abort(reason)

    def all_begun(self) -> bool:
        """Tell whether every work held has started, so that none will be given back."""
        return all(delivery.started_at is not None for delivery in self.all())

    def running(self) -> list[Delivery]:
        """Return works whose attempts have not ended; the others only wait to be settled or released."""
        return [delivery for delivery in self.all() if not (delivery.ended or delivery.withdrawn)]

    def _count(self, deliveries: list[Delivery], sign: int) -> None:
        """Count works in or out (under the lock); a batch is counted by itself."""
        self.attempts += sign * len(deliveries)
        for delivery in deliveries:
            if not delivery.in_batch and delivery.doer is None:
                self._begun += sign
            elif not delivery.in_batch:
                self.in_doers += sign


class ActiveWork(NamedTuple):
    """A work that this process has claimed and whose attempt has not ended.

    ``attempt`` counts from 1. ``claimed_for`` and ``running_for`` are seconds; the second is None while the
    work waits for a slot, for its batch, or in a doer.
    """

    id: str
    type: str
    queue: str
    attempt: int
    claimed_for: float
    running_for: float | None


def active_works(in_flight: InFlight) -> list[ActiveWork]:
    """Return the claimed works whose attempts have not ended, the first claimed first."""
    now = time.monotonic()
    running = sorted(in_flight.running(), key=lambda delivery: delivery.claimed_at)
    return [
        ActiveWork(
            delivery.row.id,
            delivery.type,
            delivery.row.queue,
            delivery.row.attempt,
            now - delivery.claimed_at,
            None if delivery.started_at is None else now - delivery.started_at,
        )
        for delivery in running
    ]


def deliveries_by_id(deliveries: Iterable[Delivery]) -> dict[str, int]:
    """Return the delivery number of each work, which fences writes to its row."""
    return {delivery.row.id: delivery.row.delivery for delivery in deliveries}
