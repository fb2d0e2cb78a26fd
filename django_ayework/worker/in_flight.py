"""Works that this process has claimed and not yet settled, and what a stopping worker does with them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

from django_ayework.conf import get_settings
from django_ayework.define.context import AbortReason
from django_ayework.flow.events import report
from django_ayework.flow.notify import publish_released
from django_ayework.store import transitions
from django_ayework.worker import bounds
from django_ayework.worker.delivery import Delivery
from django_ayework.worker.threads import twice

# --- holdings ---
# Everything this process has claimed and not yet settled.


class InFlight:
    """Claimed works by id; shared by claiming, slots, settling, leases and maintenance."""

    def __init__(self, on_room: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, Delivery] = {}
        self._unfinished = 0
        self.in_doers = 0  # works and batches that doers hold, waiting or running
        self._on_room = on_room
        self.finished = 0  # works and batches that have left their slots
        self.attempts = 0  # made since the start, or to be made
        self.low_water = 0

    def add(self, deliveries: list[Delivery]) -> None:
        """Note claimed works."""
        with self._lock:
            self._held.update((delivery.row.id, delivery) for delivery in deliveries)
            self._unfinished += in_slots(deliveries)
            self.in_doers += in_doers(deliveries)
            self.attempts += len(deliveries)

    def begin_batch(self, in_doer: bool = False) -> None:
        """Note that works gather for a batch, which will take a slot, or be one task of a doer."""
        with self._lock:
            if in_doer:
                self.in_doers += 1
            else:
                self._unfinished += 1

    def finish(self, in_doer: bool = False) -> None:
        """Note that a work or a batch has ended; its settlement may still be on its way."""
        with self._lock:
            if in_doer:
                self.in_doers -= 1
            else:
                self._unfinished -= 1
                self.finished += 1
            has_room = in_doer or self._unfinished <= self.low_water
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
            self._unfinished -= in_slots(deliveries)
            self.in_doers -= in_doers(deliveries)
            self.attempts -= len(deliveries)
        self.settle(deliveries)

    @property
    def unfinished(self) -> int:
        """How many claimed works and batches gather, wait for a slot, or run in one."""
        return self._unfinished

    @property
    def active(self) -> int:
        """How many claimed works and batches have not ended."""
        return self._unfinished + self.in_doers

    def all(self) -> list[Delivery]:
        """Return every work held."""
        with self._lock:
            return list(self._held.values())

    def abort(self, reasons: Mapping[str, AbortReason]) -> None:
        """Tell attempts of these works to stop, if they run here."""
        with self._lock:
            held = [(self._held[id], reason) for id, reason in reasons.items() if id in self._held]
        for delivery, reason in held:
            delivery.abort(reason)

    def ids(self) -> set[str]:
        """Return the ids of every work held."""
        with self._lock:
            return set(self._held)

    def all_begun(self) -> bool:
        """Tell whether every work held has started, so that none will be given back."""
        return all(delivery.started_at is not None for delivery in self.all())

    def waiting_longer_than(self, seconds: float) -> list[Delivery]:
        """Return works that have been ready for this long and have not started."""
        before = time.monotonic() - seconds
        return [d for d in self.all() if d.started_at is None and d.ready_at < before]


def in_slots(deliveries: list[Delivery]) -> int:
    """Return how many slots these take; a batch is counted by itself."""
    return sum(not delivery.in_batch and delivery.doer is None for delivery in deliveries)


def in_doers(deliveries: list[Delivery]) -> int:
    """Return how many of these a doer runs; a batch is counted by itself."""
    return sum(not delivery.in_batch and delivery.doer is not None for delivery in deliveries)


# --- winding down ---
# Winding down: what a stopping worker does with the works it holds.

logger = logging.getLogger("django_ayework")

LOOK_EVERY = 0.02
#: How often a handler is to be interrupted that is in a delicate place, before it is left to itself.
INTERRUPTIONS = 10


def wind_down(worker_id: str, in_flight: InFlight, until: float) -> int:
    """Give back what has not started, let what runs end until this moment, then give that back too.

    No attempt is spent by it. The outcome of a handler that ends after all is refused, as its work is no
    longer ours. Return how many works could not be given back: those are left to their leases.
    """
    waiting = [delivery for delivery in in_flight.all() if delivery.withdraw()]
    kept = [] if give_back(worker_id, waiting) else waiting
    in_flight.give_back(waiting)
    await_running(in_flight, until)
    left = running(in_flight)
    tell_to_stop(left)
    given_back = give_back(worker_id, [*kept, *left])
    in_flight.settle(left)
    return 0 if given_back else len(kept) + len(left)


def tell_to_stop(deliveries: list[Delivery]) -> None:
    """Tell attempts that the worker stops, and interrupt those that may be; there is no time to insist."""
    for delivery in deliveries:
        delivery.abort(AbortReason.SHUTDOWN)
    for _ in range(INTERRUPTIONS):
        if not any(delivery.is_interruptible and not delivery.ended for delivery in deliveries):
            break
        for delivery in deliveries:
            delivery.interrupt()
        time.sleep(LOOK_EVERY)


def give_back(worker_id: str, deliveries: list[Delivery]) -> bool:
    """Release works; return False when the database does not answer."""
    if not deliveries:
        return True
    try:
        held = {delivery.row.id: delivery.row.delivery for delivery in deliveries}
        released = twice(lambda: transitions.release(held, worker_id))
    except Exception as error:
        report(error, "queue", f"{len(deliveries)} works could not be given back")
        return False
    publish_released(delivery.row for delivery in deliveries)
    logger.info("Worker %s gave %d works back.", worker_id, released)
    return True


def await_running(in_flight: InFlight, until: float) -> None:
    """Wait for running attempts to end."""
    while running(in_flight) and time.monotonic() < until:
        time.sleep(LOOK_EVERY)


def running(in_flight: InFlight) -> list[Delivery]:
    """Return works whose attempts have not ended; those that have ended are the settler's."""
    return [delivery for delivery in in_flight.all() if not delivery.ended]


def ends_in_time(thread: threading.Thread, worker_id: str) -> bool:
    """Wait for the end of a worker that was told to stop; return False when a silent database keeps it."""
    patience = get_settings().shutdown_grace + bounds.FAREWELL
    thread.join(patience)
    if thread.is_alive():
        logger.error(
            "Worker %s has not stopped within %.0f s, as the database does not answer: "
            "its works run again once their leases have lapsed.", worker_id, patience,
        )  # fmt: skip
    return not thread.is_alive()
