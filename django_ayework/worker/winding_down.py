"""Winding down: what a stopping worker does with the works it holds."""

from __future__ import annotations

import logging
import time

from django_ayework.define.signal import AbortReason
from django_ayework.flow.events import report
from django_ayework.store import transitions
from django_ayework.worker.delivery import Delivery
from django_ayework.worker.holdings import Holdings

logger = logging.getLogger("django_ayework")

LOOK_EVERY = 0.02


def wind_down(worker_id: str, holdings: Holdings, grace: float) -> None:
    """Give back what has not started, let what runs end within ``grace`` seconds, then give that back too.

    No attempt is spent by it. The outcome of a handler that ends after all is refused, as its work is no
    longer ours.
    """
    waiting = [delivery for delivery in holdings.all() if delivery.withdraw()]
    give_back(worker_id, waiting)
    holdings.give_back(waiting)
    await_running(holdings, time.monotonic() + grace)
    left = running(holdings)
    for delivery in left:
        delivery.abort(AbortReason.SHUTDOWN)
    give_back(worker_id, left)


def give_back(worker_id: str, deliveries: list[Delivery]) -> None:
    """Release works; when the database does not answer, their leases will lapse."""
    if not deliveries:
        return
    try:
        released = transitions.release({d.row.id: d.row.delivery for d in deliveries}, worker_id)
        logger.info("Worker %s gave %d works back.", worker_id, released)
    except Exception as error:
        report(error, "queue", f"{len(deliveries)} works are left to their leases")


def await_running(holdings: Holdings, until: float) -> None:
    """Wait for running attempts to end."""
    while running(holdings) and time.monotonic() < until:
        time.sleep(LOOK_EVERY)


def running(holdings: Holdings) -> list[Delivery]:
    """Return works whose attempts have not ended; those that have ended are the settler's."""
    return [delivery for delivery in holdings.all() if not delivery.ended]
