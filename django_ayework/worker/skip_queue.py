"""First attempts of works that skip the queue, in the process that enqueued them.

Committed works arrive at the :class:`Intake`, which gives them to a :class:`DirectPool` of threads. Works
that the pool has no room for stay in the queue.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Sequence

from django_ayework.compat import after_fork_in_child, before_threads_end
from django_ayework.conf import get_settings
from django_ayework.define.requests import new_uuid7
from django_ayework.documentation import logged
from django_ayework.flow.controls import current_controls
from django_ayework.flow.hooks import report
from django_ayework.flow.notify import revoked_works
from django_ayework.heartbeat import Heartbeat
from django_ayework.logs import logger
from django_ayework.rules.controls import Controls, capped
from django_ayework.rules.notifications import DIRECT
from django_ayework.store import claims
from django_ayework.store.connections import close_all_connections
from django_ayework.store.controls import hold_type_controls, running_counts
from django_ayework.store.database import clock, in_own_transaction
from django_ayework.store.rows import WorkRow
from django_ayework.worker import bounds
from django_ayework.worker.attempt import Ended
from django_ayework.worker.claimer import as_deliveries
from django_ayework.worker.executor import Load
from django_ayework.worker.in_flight import Delivery
from django_ayework.worker.maintenance import MaintenanceThread
from django_ayework.worker.shutdown import ends_in_time
from django_ayework.worker.threads import Failures
from django_ayework.worker.worker import Engine

#: Seconds without a work after which the threads end, and their connections with them.
IDLE = 5.0


def claim_directly(works: Sequence[WorkRow], worker: str) -> list[Delivery]:
    """Lease these works unless somebody has claimed them; paused, limited or declined ones stay queued."""
    began = time.monotonic()
    controls = current_controls()
    permitted = [row for row in works if controls.permits(row.queue, row.type)]
    limited = sorted({row.type for row in permitted if controls.of(row.type).max_running})
    claiming = (permitted, limited, controls, worker)
    rows = in_own_transaction(claim_within, *claiming) if limited else claim_within(*claiming)
    return as_deliveries(rows, worker, began, Failures())


def claim_within(
    works: Sequence[WorkRow], limited: list[str], controls: Controls, worker: str
) -> list[WorkRow]:
    """Lease works in the order in which they were enqueued, as many as limits leave room for.

    The limited types' rows are locked first, then the running works counted, as workers do: the count, in a
    later statement than the lock, misses no claim of a rival's. Works of a type whose row is locked elsewhere
    are left to workers.
    """
    contended = set(limited).difference(hold_type_controls(limited, clock.now())) if limited else set()
    works = [row for row in works if row.type not in contended]
    room = capped(Counter(row.type for row in works), controls, running_counts(limited) if limited else {})
    fitting = []
    for row in works:
        if room[row.type] > 0:
            room[row.type] -= 1
            fitting.append(row.id)
    if not fitting:
        return []
    claimed = {row.id: row for row in claims.claim_new(fitting, claims.new_lease(worker))}
    return [claimed[id] for id in fitting if id in claimed]


class DirectPool(Engine):
    """Threads that claim the works they are given and run them, ``concurrency`` at a time.

    The pool has the parts of a worker, but does not poll. It takes no more works than may run at a time, so
    nothing waits here for long.
    """

    _begins_claimed = True

    def __init__(self, concurrency: int) -> None:
        super().__init__(f"{DIRECT}{new_uuid7()}", concurrency, self._notify, "direct")
        self._maintenance = MaintenanceThread(self.id, self._in_flight, self._services, self._settler.tally)
        self._changed = threading.Condition()
        self._given: deque[WorkRow] = deque()
        self._taken = 0  # works given and not ended yet
        self._stopping = False
        #: Whether it takes no more works, and its threads are ending.
        self.is_over = False
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
        """Let given works begin and end within the grace, release the rest; return whether threads ended."""
        self.request_stop()
        return ends_in_time(self._claiming.thread, self.id)

    def _notify(self) -> None:
        """Look again whether there is something to do."""
        with self._changed:
            self._changed.notify()

    def _serve(self, heartbeat: Heartbeat) -> None:
        """Start the works of the queue until it was empty for a while, or the process stops.

        A pool whose threads could not be started does not begin again: a new one takes the next works.
        """
        if self.is_over:
            return
        revoked_works.subscribe(self._in_flight.abort)
        try:
            self._start_threads()
            while works := self._next(heartbeat):
                self._start(works)
        finally:
            self.is_over = True
            revoked_works.unsubscribe(self._in_flight.abort)
            if left := self._wind_down():
                logger.error(
                    "%d works that skipped the queue are left to their leases. %s",
                    left,
                    logged("left-to-leases"),
                )

    def _watch(self) -> None:
        """Watch the threads until they have ended; when one is lost, the next works go to a new pool."""
        while not self._claiming.has_ended:
            self._watchdog.check()
            if self._watchdog.lost:
                self.is_over = True
                self.request_stop()
            self._claiming.join(bounds.CHECK_EVERY)

    def _next(self, heartbeat: Heartbeat) -> list[WorkRow]:
        """Wait for works; none when it is time to end, after which none are taken in."""
        with self._changed:
            while not self._stopping and not self._given:
                heartbeat.beat(rest=IDLE)
                was_notified = self._changed.wait(IDLE)
                self._executor.submit([])  # there may have been no thread for some works
                if not was_notified and not self._taken and not self._in_flight.all():
                    break
            # Works given before the stop was requested are claimed and begin, as their process may end right
            # after the commit. give() takes none since then, so the next turn finds nothing and ends.
            self.is_over = self.is_over or not self._given
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
            close_all_connections()
        self._make_room(len(works) - started)

    def _finished(self, load: Load, outcomes: list[Ended]) -> None:
        """Pass outcomes on to be settled (slots call this)."""
        super()._finished(load, outcomes)
        self._make_room(1)

    def _make_room(self, works: int) -> None:
        """Note that so many works have ended, or were not ours to run."""
        with self._changed:
            self._taken -= works
            self._changed.notify()


class Intake:
    """Gives committed works to the pool of this process, and makes a new pool when the last has ended."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew, as in a forked process, which has no threads and perhaps a locked lock."""
        self._lock = threading.Lock()
        self._pool: DirectPool | None = None
        self._is_closed = False

    def offer(self, works: Sequence[WorkRow]) -> None:
        """Start committed works soon, in other threads; works without a free slot stay in the queue."""
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
        """Take no more works, and ask the pool to end; return at once."""
        with self._lock:
            self._is_closed = True
            if self._pool is not None:
                self._pool.request_stop()

    def stop(self) -> bool:
        """Let given works begin and end within the grace, release the rest; return whether that was done."""
        self.close()
        return self._pool is None or self._pool.stop()


intake = Intake()
after_fork_in_child(intake.forget)
# Without the executors of asyncio, async handlers cannot reach their ends.
before_threads_end(intake.stop)
