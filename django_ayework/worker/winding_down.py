"""Winding down: what a stopping worker does with the works it holds."""

from __future__ import annotations

import logging
import threading
import time

from django_ayework.conf import get_settings
from django_ayework.define.signal import AbortReason
from django_ayework.flow.events import report
from django_ayework.flow.news.outbox import tell_others
from django_ayework.store import transitions
from django_ayework.worker import bounds
from django_ayework.worker.attempts.delivery import Delivery
from django_ayework.worker.holdings import Holdings
from django_ayework.worker.recovery import twice

logger = logging.getLogger("django_ayework")

LOOK_EVERY = 0.02
#: How often a handler is to be interrupted that is in a delicate place, before it is left to itself.
INTERRUPTIONS = 10


def wind_down(worker_id: str, holdings: Holdings, until: float) -> int:
    """Give back what has not started, let what runs end until this moment, then give that back too.

    No attempt is spent by it. The outcome of a handler that ends after all is refused, as its work is no
    longer ours. Return how many works could not be given back: those are left to their leases.
    """
    waiting = [delivery for delivery in holdings.all() if delivery.withdraw()]
    kept = [] if give_back(worker_id, waiting) else waiting
    holdings.give_back(waiting)
    await_running(holdings, until)
    left = running(holdings)
    tell_to_stop(left)
    given_back = give_back(worker_id, [*kept, *left])
    holdings.settle(left)
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
    tell_others(delivery.row for delivery in deliveries)
    logger.info("Worker %s gave %d works back.", worker_id, released)
    return True


def await_running(holdings: Holdings, until: float) -> None:
    """Wait for running attempts to end."""
    while running(holdings) and time.monotonic() < until:
        time.sleep(LOOK_EVERY)


def running(holdings: Holdings) -> list[Delivery]:
    """Return works whose attempts have not ended; those that have ended are the settler's."""
    return [delivery for delivery in holdings.all() if not delivery.ended]


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
