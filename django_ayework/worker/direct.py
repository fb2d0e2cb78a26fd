"""First attempts of works that skip the queue, in the process that enqueued them."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from datetime import datetime
from functools import partial

from django.db import connections

from django_ayework.compat import after_fork_in_child, before_threads_end
from django_ayework.conf import get_settings
from django_ayework.define.ids import new_uuid7
from django_ayework.flow.controls import current_controls
from django_ayework.flow.effects import add_revocation_listener, remove_revocation_listener
from django_ayework.flow.events import report
from django_ayework.flow.services import EngineServices
from django_ayework.heartbeat import Heartbeat
from django_ayework.rules.controls import Controls, capped
from django_ayework.rules.durations import later
from django_ayework.rules.notifications import DIRECT
from django_ayework.store import claims
from django_ayework.store.clock import clock
from django_ayework.store.controls import hold_type_controls, running_counts
from django_ayework.store.database import in_own_transaction
from django_ayework.store.rows import WorkRow
from django_ayework.worker import bounds
from django_ayework.worker.batch import Ended
from django_ayework.worker.claimer import delivered
from django_ayework.worker.delivery import Delivery
from django_ayework.worker.executor import Executor, Load, was_given_back
from django_ayework.worker.health import CHECK_EVERY, Watchdog
from django_ayework.worker.in_flight import InFlight, LeaseThread, ends_in_time, wind_down
from django_ayework.worker.maintenance import MaintenanceThread
from django_ayework.worker.settler import Settler
from django_ayework.worker.threads import EngineThread

# --- claiming ---
# Claiming of works that skip the queue: these and no others, within what operators allow.


def claim_directly(works: Sequence[WorkRow], worker: str) -> list[Delivery]:
    """Lease works that nobody has claimed yet; what is paused, at a limit or declined stays in the queue."""
    controls, now = current_controls(), clock.now()
    permitted = [row for row in works if controls.permits(row.queue, row.type)]
    limited = sorted({row.type for row in permitted if controls.of(row.type).max_running})
    claim = partial(claim_within, permitted, limited, controls, worker, now)
    return delivered(in_own_transaction(claim) if limited else claim(), worker)


def claim_within(
    works: Sequence[WorkRow], limited: list[str], controls: Controls, worker: str, now: datetime
) -> list[WorkRow]:
    """Lock the limited types' rows, then count what runs, then claim what there is room for.

    As workers do: the count, in a later statement than the lock, misses no claim of a rival's. Works of a
    type whose row is locked elsewhere are left to workers.
    """
    contended = set(limited).difference(hold_type_controls(limited, now)) if limited else set()
    works = [row for row in works if row.type not in contended]
    running = running_counts(limited) if limited else {}
    room = capped(Counter(row.type for row in works), controls, running)
    fitting = []
    for row in works:
        if room[row.type] > 0:
            room[row.type] -= 1
            fitting.append(row)
    return claim_some(fitting, worker, now)


def claim_some(works: Sequence[WorkRow], worker: str, now: datetime) -> list[WorkRow]:
    """Lease works for as long as the settings say, in the order in which they were enqueued."""
    if not works:
        return []
    leased_until = later(now, get_settings().lease)
    claimed = {row.id: row for row in claims.claim_new([row.id for row in works], worker, now, leased_until)}
    return [claimed[row.id] for row in works if row.id in claimed]


# --- crew ---
# The threads that run works which skip the queue; there are none while no such work runs.

logger = logging.getLogger("django_ayework")

#: Seconds without a work after which the threads end, and their connections with them.
IDLE = 5.0


class DirectPool:
    """Claims the works it is given and runs them, ``concurrency`` at a time.

    It has the parts of a worker, but looks for no work by itself. A work it has no room for is left in the
    queue, so that as many threads are started as works may run at a time, and nothing waits here for long.
    """

    def __init__(self, concurrency: int) -> None:
        self.id = f"{DIRECT}{new_uuid7()}"
        self.concurrency = concurrency
        self._changed = threading.Condition()
        self._given: deque[WorkRow] = deque()
        self._taken = 0  # works given and not ended yet
        self._stopping = False
        #: Whether it takes no more works, and its threads are ending.
        self.is_over = False
        self._services = EngineServices()
        self._in_flight = InFlight(self._notify)
        self._executor = Executor(concurrency, self._services, self._finished)
        self._settler = Settler(self._services, self._in_flight.settle)
        self._leases = LeaseThread(self.id, self._in_flight)
        self._maintenance = MaintenanceThread(self.id, self._in_flight, self._services)
        self._claiming = EngineThread("direct", self._serve)
        threads = [self._claiming, self._settler, self._leases, self._maintenance]
        self._watchdog = Watchdog(self._in_flight, lambda: [each for each in threads if each.was_started])
        self._watching = threading.Thread(target=self._watch, name="ayework-watchdog", daemon=True)

    def start(self) -> None:
        """Start the threads."""
        self._claiming.start()
        self._watching.start()

    def give(self, works: Sequence[WorkRow]) -> bool:
        """Take in as many works as there is room for, without waiting; False when it has ended."""
        with self._changed:
            if self.is_over or self._stopping:
                return False
            room = max(0, self.concurrency - self._taken)
            self._given.extend(works[:room])
            self._taken += min(room, len(works))
            self._changed.notify()
            return True

    def request_stop(self) -> None:
        """Ask it to end; return at once."""
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def stop(self) -> bool:
        """Let what runs end within the grace, give the rest back; return whether the threads have ended."""
        self.request_stop()
        return ends_in_time(self._claiming.thread, self.id)

    def _notify(self) -> None:
        """Look again whether there is something to do."""
        with self._changed:
            self._changed.notify()

    def _serve(self, heartbeat: Heartbeat) -> None:
        """Start what is given until nothing has come for a while, or it is time to stop."""
        try:
            self._open()
            while works := self._next(heartbeat):
                self._start(works)
        finally:
            self.is_over = True
            self._close()

    def _watch(self) -> None:
        """Look after the threads until they have ended; when one is lost, works are for another crew."""
        while not self._claiming.has_ended:
            self._watchdog.check()
            if self._watchdog.lost:
                self.is_over = True
                self.request_stop()
            self._claiming.join(CHECK_EVERY)

    def _open(self) -> None:
        """Start the parts."""
        add_revocation_listener(self._in_flight.abort)
        self._settler.start()
        self._leases.start()
        self._maintenance.start()

    def _next(self, heartbeat: Heartbeat) -> list[WorkRow]:
        """Wait for works; none when it is time to end, after which none are taken in."""
        with self._changed:
            while not self._stopping and not self._given:
                heartbeat.beat(rest=IDLE)
                told = self._changed.wait(IDLE)
                if not told and not self._taken and not self._in_flight.all():
                    break
            self.is_over = self._stopping or not self._given
            works = [] if self.is_over else list(self._given)
            self._given.clear()
            heartbeat.beat()
            return works

    def _start(self, works: list[WorkRow]) -> None:
        """Claim works and hand them to the slots; what cannot be claimed is in the queue as before.

        What is claimed, and no thread can be started for, maintenance releases.
        """
        started = 0
        try:
            clock.synchronise()
            deliveries = claim_directly(works, self.id)
            self._in_flight.add(deliveries)
            for delivery in deliveries:
                self._executor.submit([delivery])
                started += 1
        except Exception as error:
            report(error, "queue", f"{len(works)} works that skip the queue are left to workers")
            connections.close_all()
        self._make_room(len(works) - started)

    def _finished(self, load: Load, outcomes: list[Ended]) -> None:
        """Pass outcomes on to be settled, unless the attempt has done so (slots call this)."""
        for delivery, settlement in outcomes:
            delivery.ended = True
            if settlement is not None and not delivery.settled:
                self._settler.submit(delivery, settlement)
            elif not delivery.withdrawn:
                self._in_flight.settle([delivery])
        if not was_given_back(load):
            self._in_flight.finish()
        self._make_room(1)

    def _make_room(self, works: int) -> None:
        """Note that so many works have ended, or were not ours to run."""
        with self._changed:
            self._taken -= works
            self._changed.notify()

    def _close(self) -> None:
        """Stop the parts in the order in which works pass through them."""
        remove_revocation_listener(self._in_flight.abort)
        until = time.monotonic() + get_settings().shutdown_grace
        left = wind_down(self.id, self._in_flight, until)
        self._executor.stop(timeout=1.0)
        self._settler.stop(timeout=max(bounds.LAST_OUTCOMES, until - time.monotonic()))
        self._leases.stop()
        self._maintenance.stop()
        left += len(self._in_flight.all())
        if left:
            logger.error("%d works that skipped the queue are left to their leases.", left)


# --- intake ---
# Where works that skip the queue arrive, from whichever thread has committed them.


class Intake:
    """Gives works to the crew of this process, and forms a new one when the last has ended."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew, as in a forked process, which has none of the threads and perhaps a locked lock."""
        self._lock = threading.Lock()
        self._pool: DirectPool | None = None
        self._is_closed = False

    def offer(self, works: Sequence[WorkRow]) -> None:
        """Start committed works soon, in other threads; what there is no room for stays in the queue."""
        concurrency = get_settings().skip_queue_concurrency
        with self._lock:
            if self._is_closed or not concurrency:
                return
            if self._pool is None or not self._pool.give(works):
                pool = DirectPool(concurrency)
                pool.give(works)
                pool.start()
                self._pool = pool

    @property
    def is_idle(self) -> bool:
        """Whether no threads are there to run anything."""
        return self._pool is None or self._pool.is_over

    def close(self) -> None:
        """Take no more works, and ask the crew to end; return at once."""
        with self._lock:
            self._is_closed = True
            if self._pool is not None:
                self._pool.request_stop()

    def stop(self) -> bool:
        """Let what runs end within the grace, give the rest back; return whether all of that was done."""
        self.close()
        return self._pool is None or self._pool.stop()


intake = Intake()
after_fork_in_child(intake.forget)
# Before the executors of asyncio are shut down, without which async handlers cannot reach their ends.
before_threads_end(intake.stop)
