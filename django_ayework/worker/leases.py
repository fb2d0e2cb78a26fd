"""Leases of the works that a worker holds: renewed while it holds them, given up by a release.

A released work is delivered again, elsewhere or later, and no attempt is spent.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from django.db import Error, connections

from django_ayework.conf import get_settings
from django_ayework.define.context import AbortReason
from django_ayework.flow.notify import publish_released
from django_ayework.rules.durations import later
from django_ayework.store import leases, transitions
from django_ayework.store.database import clock, is_contention
from django_ayework.worker.in_flight import (
    Delivery,
    InFlight,
    abort_lost,
    deliveries_by_id,
    losses_of,
    warn_if_late,
)
from django_ayework.worker.threads import LoopThread, Recovery

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
        """Renew the leases that are due, those of equal length together."""
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
        """Renew leases of one length; abort attempts whose leases have lapsed because that fails.

        A work that waits is kept: it is ours until another worker takes it.
        """
        try:
            renewed = leases.renew(deliveries_by_id(due), self.worker_id, later(clock.now(), lease))
        except Exception as error:
            if not (isinstance(error, Error) and is_contention(error)):
                for delivery in due:
                    if delivery.started_at is not None and delivery.has_lapsed(now):
                        delivery.abort(AbortReason.ERROR)
            raise
        for delivery in due:
            if delivery.row.id in renewed:
                warn_if_late(delivery, "renewed")
                delivery.renew(now)
        abort_lost([delivery for delivery in due if delivery.row.id not in renewed])


def release(deliveries: Sequence[Delivery], worker_id: str) -> list[Delivery]:
    """Release works; return those that this worker still holds, as other transactions have locked their rows.

    Works that are not ours any more are left alone.
    """
    released = transitions.release(deliveries_by_id(deliveries), worker_id, skip_locked=True)
    publish_released(delivery.row for delivery in deliveries if delivery.row.id in released)
    others = [delivery for delivery in deliveries if delivery.row.id not in released]
    return [delivery for delivery, loss in losses_of(others) if loss is None]
