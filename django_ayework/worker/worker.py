"""The worker: claims works, runs them, settles them, and leaves nothing behind when it stops."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterable
from types import TracebackType

from django.db import connections

from django_ayework import signals
from django_ayework.conf import get_settings
from django_ayework.define.ids import new_uuid7
from django_ayework.define.registry import registry
from django_ayework.flow.effects import (
    add_revocation_listener,
    add_sleeper,
    remove_revocation_listener,
    remove_sleeper,
)
from django_ayework.flow.events import report
from django_ayework.flow.services import EngineServices
from django_ayework.flow.settle import Settlement
from django_ayework.models import WorkerProcess
from django_ayework.rules.unknown import OFFER_AGAIN, unknown_error, unknown_since
from django_ayework.store import processes, transitions
from django_ayework.store.clock import clock
from django_ayework.worker.attempt import is_parked
from django_ayework.worker.claimer import Claimer
from django_ayework.worker.delivery import Delivery
from django_ayework.worker.demand import Demand
from django_ayework.worker.holdings import Holdings
from django_ayework.worker.keeper import Keeper
from django_ayework.worker.settler import Settler
from django_ayework.worker.slots import Slots
from django_ayework.worker.winding_down import wind_down

logger = logging.getLogger("django_ayework")

#: Seconds to wait after the loop met an error, growing to the second figure while errors go on.
FIRST_RECOVERY, LONGEST_RECOVERY = 0.2, 10.0


class Worker:
    """A worker of this process: threads for plain handlers, one event loop for async ones.

    ``queues`` limits it to these queues (all, when empty); ``concurrency`` is how many works run at a time.
    With ``burst`` it stops once nothing that it may run is due and nothing runs; with ``max_works`` after
    that many attempts.

    Example::

        with Worker(concurrency=4):
            handle.result(timeout=10)
    """

    def __init__(
        self,
        queues: Iterable[str] = (),
        concurrency: int | None = None,
        *,
        name: str = "",
        burst: bool = False,
        max_works: int | None = None,
    ) -> None:
        self.id = new_uuid7()
        self.name = name
        self.queues = (queues,) if isinstance(queues, str) else tuple(queues)
        self.concurrency = concurrency or get_settings().concurrency
        self.burst = burst
        self.max_works = max_works
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._stop_lock = threading.Lock()
        self._holdings = Holdings(self._wake.set)
        self._demand = Demand(self.concurrency)
        self._services = EngineServices()
        self._claimer = Claimer(self.id, self.queues)
        self._slots = Slots(self.concurrency, self._services, self._finished)
        self._settler = Settler(self._services, self._holdings.settle)
        self._keeper = Keeper(self.id, self._holdings, self._services)

    def start(self) -> None:
        """Start in the background; return at once."""
        if self._thread is not None:
            raise RuntimeError("this Worker was started before; build a new one.")
        self._thread = threading.Thread(target=self.run, name="ayework-worker", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop claiming, let running works finish within the grace, release the rest; wait for all that."""
        self.request_stop()
        if self._thread is not None:
            self._thread.join()

    def request_stop(self) -> None:
        """Ask the worker to stop; return at once (safe in a signal handler)."""
        self._stopping.set()
        self._wake.set()

    @property
    def is_stopping(self) -> bool:
        """Whether the worker was asked to stop."""
        return self._stopping.is_set()

    def __enter__(self) -> Worker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def run(self) -> None:
        """Work in this thread until asked to stop (or, with ``burst``, until nothing is due)."""
        self._open()
        try:
            self._work()
        finally:
            self._close()

    def _open(self) -> None:
        """Announce this worker and start its threads."""
        self._persist(clock.synchronise)
        now = clock.now()
        process = WorkerProcess(
            id=self.id,
            name=self.name,
            host=socket.gethostname(),
            pid=os.getpid(),
            queues=",".join(self.queues),
            concurrency=self.concurrency,
            started_at=now,
            seen_at=now,
        )
        self._persist(lambda: processes.register(process))
        add_sleeper(self._wake)
        add_revocation_listener(self._holdings.abort)
        for part in (self._settler, self._keeper):
            part.start()
        signals.worker_started.send_robust(sender=Worker, worker=self)
        logger.info(
            "Worker %s started: %d at a time, %s.", self.id, self.concurrency, self.queues or "all queues"
        )

    def _persist(self, act: Callable[[], object]) -> None:
        """Do something once the database answers; give up when asked to stop."""
        pause = FIRST_RECOVERY
        while not self._stopping.is_set():
            try:
                act()
                return
            except Exception as error:
                report(error, "queue", "the worker waits for the database")
                connections.close_all()
            self._stopping.wait(pause)
            pause = min(pause * 2, LONGEST_RECOVERY)

    def _work(self) -> None:
        """Claim and hand out until it is time to stop; an error costs a pause, never the loop."""
        recovery = FIRST_RECOVERY
        while not self._is_over():
            self._wake.clear()
            try:
                pause = self._turn()
                recovery = FIRST_RECOVERY
            except Exception as error:
                report(error, "queue", "the claiming loop failed and carries on")
                connections.close_all()
                pause, recovery = recovery, min(recovery * 2, LONGEST_RECOVERY)
            if pause:
                self._wake.wait(pause)

    def _turn(self) -> float:
        """Claim what fits; return how many seconds there is nothing to do."""
        self._demand.measure(self._holdings.finished)
        self._holdings.low_water = self._demand.low_water
        wanted = self._wanted()
        if wanted <= 0:
            if self._claimer.look_is_due():  # gates expire and works are rescued however busy the slots are
                self._claimer.look_around(self._holdings.ids())
            return get_settings().poll_interval
        self._hand_out(self._claimer.claim(wanted, self._holdings.ids()))
        if self._claimer.busy and self._wanted() > 0:
            return 0.0
        return self._claimer.pause()

    def _wanted(self) -> int:
        """Return how many works to claim now; none while enough are in hand."""
        held = self._holdings.unfinished
        if held > self._demand.low_water or self._stopping.is_set():
            return 0
        wanted = self._demand.target - held
        return wanted if self.max_works is None else min(wanted, self.max_works - self._attempts())

    def _attempts(self) -> int:
        """Return how many attempts were made or will be; works given back before their start are none."""
        return self._holdings.finished + self._holdings.unfinished

    def _hand_out(self, deliveries: list[Delivery]) -> None:
        """Give works to the slots; those of a type unknown here go back for others."""
        parked = [delivery for delivery in deliveries if is_parked(delivery.row)]
        runnable = [delivery for delivery in deliveries if delivery not in parked]
        self._holdings.add(runnable)
        for delivery in runnable:
            self._slots.submit(delivery)
        for delivery in parked:
            self._park(delivery)

    def _park(self, delivery: Delivery) -> None:
        """Offer a work again later: another worker may know its type."""
        now, row = clock.now(), delivery.row
        logger.warning(
            "Work %s has the type %r, which is unknown here; known are: %s.",
            row.id, row.type, ", ".join(registry.names()) or "none",
        )  # fmt: skip
        error = unknown_error(unknown_since(row.error, now))
        transitions.release({row.id: row.delivery}, self.id, now + OFFER_AGAIN, error)

    def _finished(self, delivery: Delivery, settlement: Settlement | None) -> None:
        """Pass an outcome on to be settled, unless the attempt has done so (slots call this).

        Without an outcome the work is left to its lease.
        """
        delivery.ended = True
        if settlement is not None and not delivery.settled:
            self._settler.submit(delivery, settlement)
            self._holdings.finish()
        elif not delivery.withdrawn:
            self._holdings.finish()
            self._holdings.settle([delivery])

    def _is_over(self) -> bool:
        """Tell whether it is time to stop."""
        if self._stopping.is_set():
            return True
        if self._holdings.all():
            return False
        spent = self.max_works is not None and self._attempts() >= self.max_works
        return spent or (self.burst and self._is_drained())

    def _is_drained(self) -> bool:
        """Look once more: nothing is due."""
        try:
            self._claimer.look_around(set())
        except Exception:
            return False
        return self._claimer.is_idle()

    def _close(self) -> None:
        """Stop the parts in the order in which works pass through them."""
        remove_sleeper(self._wake)
        remove_revocation_listener(self._holdings.abort)
        self._stopping.set()
        grace = get_settings().shutdown_grace
        wind_down(self.id, self._holdings, grace)
        self._slots.stop(timeout=1.0)
        self._settler.stop(timeout=max(5.0, grace))
        self._keeper.stop()
        self._say_goodbye()

    def _say_goodbye(self) -> None:
        """Note the end, if the database is there to hear it."""
        try:
            processes.stopped(self.id, clock.now())
        except Exception as error:
            report(error, "queue", "the worker could not note that it stopped")
        connections.close_all()
        signals.worker_stopped.send_robust(sender=Worker, worker=self)
        logger.info("Worker %s stopped.", self.id)
