"""The threads that run works which skip the queue; there are none while no such work runs."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence

from django.db import connections

from django_ayework.conf import get_settings
from django_ayework.define.ids import new_uuid7
from django_ayework.flow.effects import add_revocation_listener, remove_revocation_listener
from django_ayework.flow.events import report
from django_ayework.flow.services import EngineServices
from django_ayework.heartbeat import Heartbeat
from django_ayework.rules.direct import DIRECT
from django_ayework.store.clock import clock
from django_ayework.store.rows import WorkRow
from django_ayework.worker import bounds
from django_ayework.worker.batches.running import Ended
from django_ayework.worker.direct.claiming import claim_directly
from django_ayework.worker.executor import Executor
from django_ayework.worker.holdings import Holdings
from django_ayework.worker.leases import LeaseThread
from django_ayework.worker.maintenance import Maintenance
from django_ayework.worker.settler import Settler
from django_ayework.worker.slots.loads import Load, was_given_back
from django_ayework.worker.threads import EngineThread
from django_ayework.worker.watchdog import LOOK_EVERY, Watchdog
from django_ayework.worker.winding_down import ends_in_time, wind_down

logger = logging.getLogger("django_ayework")

#: Seconds without a work after which the threads end, and their connections with them.
IDLE = 5.0


class Crew:
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
        self._holdings = Holdings(self._notify)
        self._executor = Executor(concurrency, self._services, self._finished)
        self._settler = Settler(self._services, self._holdings.settle)
        self._leases = LeaseThread(self.id, self._holdings)
        self._maintenance = Maintenance(self.id, self._holdings, self._services, None)
        self._claiming = EngineThread("direct", self._serve)
        threads = [self._claiming, self._settler.thread, self._leases.thread, self._maintenance.thread]
        self._watchdog = Watchdog(self._holdings, lambda: [each for each in threads if each.was_started])
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
            self._watchdog.look()
            if self._watchdog.lost:
                self.is_over = True
                self.request_stop()
            self._claiming.join(LOOK_EVERY)

    def _open(self) -> None:
        """Start the parts."""
        add_revocation_listener(self._holdings.abort)
        self._settler.start()
        self._leases.start()
        self._maintenance.start()

    def _next(self, heartbeat: Heartbeat) -> list[WorkRow]:
        """Wait for works; none when it is time to end, after which none are taken in."""
        with self._changed:
            while not self._stopping and not self._given:
                heartbeat.beat(rest=IDLE)
                told = self._changed.wait(IDLE)
                if not told and not self._taken and not self._holdings.all():
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
            self._holdings.add(deliveries)
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
                self._holdings.settle([delivery])
        if not was_given_back(load):
            self._holdings.finish()
        self._make_room(1)

    def _make_room(self, works: int) -> None:
        """Note that so many works have ended, or were not ours to run."""
        with self._changed:
            self._taken -= works
            self._changed.notify()

    def _close(self) -> None:
        """Stop the parts in the order in which works pass through them."""
        remove_revocation_listener(self._holdings.abort)
        until = time.monotonic() + get_settings().shutdown_grace
        left = wind_down(self.id, self._holdings, until)
        self._executor.stop(timeout=1.0)
        self._settler.stop(timeout=max(bounds.LAST_OUTCOMES, until - time.monotonic()))
        self._leases.stop()
        self._maintenance.stop()
        left += len(self._holdings.all())
        if left:
            logger.error("%d works that skipped the queue are left to their leases.", left)
