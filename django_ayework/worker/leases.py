"""The lease thread: renews the leases of the works that this process holds, and does nothing else."""

from __future__ import annotations

import threading
import time

from django.db import Error, connections

from django_ayework.conf import get_settings
from django_ayework.define.context import AbortReason
from django_ayework.flow.events import report
from django_ayework.heartbeat import Heartbeat
from django_ayework.rules.durations import later
from django_ayework.store import locks
from django_ayework.store.clock import clock
from django_ayework.store.database import is_contention
from django_ayework.worker import bounds
from django_ayework.worker.delivery import Delivery, abort_lost, warn_if_late
from django_ayework.worker.in_flight import InFlight
from django_ayework.worker.threads import EngineThread, Recovery

TICK = 0.25
#: Seconds between two attempts to reach a database that is away; less when leases are short.
LONGEST_PAUSE = 5.0
#: Seconds without a work after which the connection is closed.
IDLE = 5.0


class LeaseThread:
    """Renews leases that are a third used, so that short works are never renewed.

    A row that somebody else has locked is passed over, and tried again at the next tick: a work stays ours as
    long as no other worker has taken it. Nothing here runs code of the project's.
    """

    def __init__(self, worker_id: str, in_flight: InFlight) -> None:
        self.worker_id = worker_id
        self.in_flight = in_flight
        self.thread = EngineThread("leases", self._serve)
        self._stopping = threading.Event()
        self._held_at = time.monotonic()

    def start(self) -> None:
        """Start the thread."""
        self.thread.start()

    def stop(self) -> None:
        """End the thread after its present turn."""
        self._stopping.set()
        self.thread.join(bounds.LAST_DUTIES)

    def _serve(self, heartbeat: Heartbeat) -> None:
        recovery = Recovery(TICK, min(LONGEST_PAUSE, get_settings().lease / 6))
        pause = TICK
        while not self._stopping.wait(pause):
            heartbeat.beat()
            try:
                self.renew_due()
                recovery.succeed()
                pause = TICK
            except Exception as error:
                report(error, "queue", "the leases could not be renewed", brief=recovery.goes_on)
                connections.close_all()
                pause = recovery.fail()
            heartbeat.beat(rest=pause)

    def renew_due(self) -> None:
        """Renew what is due, the works of each length of lease together."""
        now = time.monotonic()
        held = self.in_flight.all()
        due = [delivery for delivery in held if now - delivery.renewed_at > delivery.lease / 3]
        for lease in {delivery.lease for delivery in due}:
            self.renew([delivery for delivery in due if delivery.lease == lease], lease, now)
        if held:
            self._held_at = now
        elif now - self._held_at > IDLE:
            connections.close_all()

    def renew(self, due: list[Delivery], lease: float, now: float) -> None:
        """Renew leases of one length; a work whose lease lapses because that fails is told of the error."""
        deliveries = {delivery.row.id: delivery.row.delivery for delivery in due}
        try:
            renewed = locks.renew(deliveries, self.worker_id, later(clock.now(), lease))
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
