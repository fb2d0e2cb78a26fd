"""Works that this process has claimed and not yet settled: their leases, and their return when it stops."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

from django.db import Error, connections

from django_ayework.conf import get_settings
from django_ayework.define.context import AbortReason
from django_ayework.flow.events import report
from django_ayework.flow.notify import notify_others
from django_ayework.rules.durations import later
from django_ayework.store import locks, transitions
from django_ayework.store.clock import clock
from django_ayework.store.database import is_contention
from django_ayework.worker import bounds
from django_ayework.worker.delivery import Delivery, abort_lost, warn_if_late
from django_ayework.worker.threads import LoopThread, Recovery, twice

logger = logging.getLogger("django_ayework")


class InFlight:
    """Claimed works by id; shared by claiming, slots, settling, leases and maintenance.

    ``on_room`` is called when an end may let more works be claimed.
    """

    def __init__(self, on_room: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, Delivery] = {}
        #: Works and batches that gather, wait for a slot, or run in one.
        self.unfinished = 0
        #: Works and batches that doers hold, waiting or running.
        self.in_doers = 0
        self._on_room = on_room
        #: Works and batches that have left their slots.
        self.finished = 0
        #: Attempts made since the start, or to be made.
        self.attempts = 0
        self.low_water = 0

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
                self.unfinished += 1

    def finish(self, in_doer: bool = False) -> None:
        """Note that a work or a batch has ended; its settlement may still be on its way."""
        with self._lock:
            if in_doer:
                self.in_doers -= 1
            else:
                self.unfinished -= 1
                self.finished += 1
            has_room = in_doer or self.unfinished <= self.low_water
        if has_room:
            self._on_room()

    def settle(self, deliveries: list[Delivery]) -> None:
        """Forget works that are settled."""
        with self._lock:
            for delivery in deliveries:
                if self._held.get(delivery.row.id) is delivery:
                    del self._held[delivery.row.id]
            empty = not self._held
        if empty:
            self._on_room()

    def give_back(self, deliveries: list[Delivery]) -> None:
        """Forget works that were withdrawn before they started."""
        with self._lock:
            self._count(deliveries, -1)
        self.settle(deliveries)

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
        """Return works whose attempts have not ended; the others only wait to be settled."""
        return [delivery for delivery in self.all() if not delivery.ended]

    def _count(self, deliveries: list[Delivery], sign: int) -> None:
        """Count works in or out (under the lock); a batch is counted by itself."""
        for delivery in deliveries:
            if delivery.in_batch:
                continue
            if delivery.doer is None:
                self.unfinished += sign
            else:
                self.in_doers += sign
        self.attempts += sign * len(deliveries)


# --- leases -----------------------------------------------------------------------------------------------

#: Seconds between two turns of the thread that renews leases.
TICK = 0.25
#: Seconds between two tries to reach a database that is away; less when leases are short.
LONGEST_PAUSE = 5.0
#: Seconds without a work after which the connection is closed.
IDLE = 5.0


def recovery_within_lease() -> Recovery:
    """Return pauses short enough that a lease outlives several of them."""
    return Recovery(TICK, min(LONGEST_PAUSE, get_settings().lease / 6))


class LeaseThread(LoopThread):
    """Renews leases that are a third used, so that short works are never renewed.

    A row that another transaction has locked is passed over, and tried again at the next tick: a work stays
    with this worker as long as no other has taken it. No code of the project runs here.
    """

    failure = "the leases could not be renewed"

    def __init__(self, worker_id: str, in_flight: InFlight) -> None:
        super().__init__("leases", recovery_within_lease())
        self.worker_id = worker_id
        self.in_flight = in_flight
        self._held_at = time.monotonic()

    def turn(self) -> float:
        """Renew what is due, the works of each length of lease together."""
        now = time.monotonic()
        held = self.in_flight.all()
        due = [delivery for delivery in held if now - delivery.renewed_at > delivery.lease / 3]
        for lease in {delivery.lease for delivery in due}:
            self._renew([delivery for delivery in due if delivery.lease == lease], lease, now)
        if held:
            self._held_at = now
        elif now - self._held_at > IDLE:
            connections.close_all()
        return TICK

    def _renew(self, due: list[Delivery], lease: float, now: float) -> None:
        """Renew leases of one length; abort works whose leases have lapsed because that fails."""
        try:
            renewed = locks.renew(deliveries_by_id(due), self.worker_id, later(clock.now(), lease))
        except Exception as error:
            for delivery in due:
                if delivery.has_lapsed(now) and not (isinstance(error, Error) and is_contention(error)):
                    delivery.abort(AbortReason.ERROR)
            raise
        for delivery in due:
            if delivery.row.id in renewed:
                warn_if_late(delivery, "renewed")
                delivery.renew(now)
        abort_lost([delivery for delivery in due if delivery.row.id not in renewed])


def deliveries_by_id(deliveries: list[Delivery]) -> dict[str, int]:
    """Return the delivery number of each work, which fences what is written about it."""
    return {delivery.row.id: delivery.row.delivery for delivery in deliveries}


# --- winding down -----------------------------------------------------------------------------------------

#: Seconds between two checks whether running attempts have ended.
CHECK_EVERY = 0.02
#: How often a handler is interrupted that cannot be at the moment, before it is left to itself.
INTERRUPTIONS = 10


def wind_down(worker_id: str, in_flight: InFlight, until: float) -> int:
    """Give back what has not started, let what runs end until this moment, then give that back too.

    No attempt is spent by it. The outcome of a handler that ends after all is refused, as its work no longer
    belongs to this worker. Return how many works could not be given back: those are left to their leases.
    """
    waiting = [delivery for delivery in in_flight.all() if delivery.withdraw()]
    kept = [] if give_back(worker_id, waiting) else waiting
    in_flight.give_back(waiting)
    while in_flight.running() and time.monotonic() < until:
        time.sleep(CHECK_EVERY)
    left = in_flight.running()
    abort_for_shutdown(left)
    given_back = give_back(worker_id, [*kept, *left])
    in_flight.settle(left)
    return 0 if given_back else len(kept) + len(left)


def abort_for_shutdown(deliveries: list[Delivery]) -> None:
    """Abort attempts as the worker stops, and interrupt those that may be; there is no time to insist."""
    for delivery in deliveries:
        delivery.abort(AbortReason.SHUTDOWN)
    for _ in range(INTERRUPTIONS):
        if not any(delivery.is_interruptible and not delivery.ended for delivery in deliveries):
            break
        for delivery in deliveries:
            delivery.interrupt()
        time.sleep(CHECK_EVERY)


def give_back(worker_id: str, deliveries: list[Delivery]) -> bool:
    """Release works; return False when the database does not answer."""
    if not deliveries:
        return True
    try:
        released = twice(lambda: transitions.release(deliveries_by_id(deliveries), worker_id))
    except Exception as error:
        report(error, "queue", f"{len(deliveries)} works could not be given back")
        return False
    notify_others(delivery.row for delivery in deliveries)
    logger.info("Worker %s gave %d works back.", worker_id, released)
    return True


def ends_in_time(thread: threading.Thread, worker_id: str) -> bool:
    """Wait for the end of a worker that was asked to stop; return False when a silent database keeps it."""
    patience = get_settings().shutdown_grace + bounds.FAREWELL
    thread.join(patience)
    if thread.is_alive():
        logger.error(
            "Worker %s has not stopped within %.0f s, as the database does not answer: "
            "its works run again once their leases have lapsed.", worker_id, patience,
        )  # fmt: skip
    return not thread.is_alive()
