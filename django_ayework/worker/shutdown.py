"""The end of a worker: works are released before it stops, and running handlers get a last grace."""

from __future__ import annotations

import threading
import time
from functools import partial

from django_ayework.conf import get_settings
from django_ayework.define.context import AbortReason
from django_ayework.documentation import logged
from django_ayework.flow.hooks import report
from django_ayework.logs import logger
from django_ayework.rules.formatting import counted
from django_ayework.worker import bounds
from django_ayework.worker.in_flight import Delivery, InFlight
from django_ayework.worker.leases import release
from django_ayework.worker.threads import log_in_time, twice

#: Seconds between two checks whether running attempts have ended.
CHECK_EVERY = 0.02
#: Seconds to wait for rows that other transactions have locked.
LOCKED_FOR = 0.75
#: How often a handler is interrupted that cannot be at the moment, before it is left to itself.
INTERRUPTIONS = 10


def wind_down(worker_id: str, in_flight: InFlight, until: float, begins_claimed: bool = False) -> int:
    """Release works that have not started, and at the moment ``until`` those that still run.

    With ``begins_claimed`` works that have not started may do so until that moment.

    No attempt is spent by it. The outcome of a handler that ends after all is refused, as its work no longer
    belongs to this worker. Return how many works could not be released: those are left to their leases.
    """
    while begins_claimed and not in_flight.all_begun() and time.monotonic() < until:
        time.sleep(CHECK_EVERY)
    withdrawn = in_flight.withdraw()
    kept = release_all(worker_id, withdrawn)
    running, seconds = in_flight.running(), until - time.monotonic()
    if running and seconds > 0:
        logger.info(
            "Worker %s stops. It waits up to %.0f s for %s.",
            worker_id, seconds, counted(len(running), "running work"),
        )  # fmt: skip
    while in_flight.running() and time.monotonic() < until:
        time.sleep(CHECK_EVERY)
    running = in_flight.running()
    abort_for_shutdown(running)
    left = release_all(worker_id, [*kept, *running])
    in_flight.settle([*withdrawn, *running])
    return len(left)


def abort_for_shutdown(deliveries: list[Delivery]) -> None:
    """Abort attempts as the worker stops, and interrupt those that may be; there is no time to insist."""
    for delivery in deliveries:
        delivery.abort(AbortReason.SHUTDOWN)
    for _ in range(INTERRUPTIONS):
        interrupted = [delivery.interrupt() for delivery in deliveries if not delivery.ended]
        if not any(interrupted):
            break
        time.sleep(CHECK_EVERY)


def release_all(worker_id: str, deliveries: list[Delivery]) -> list[Delivery]:
    """Release works; return those that could not be released, as the database or their rows are not free."""
    until = time.monotonic() + LOCKED_FOR
    left = deliveries
    while left:
        try:
            left = twice(partial(release, left, worker_id))
        except Exception as error:
            report(error, "queue", f"{counted(len(left), 'work')} could not be released")
            break
        if time.monotonic() > until:
            break
        time.sleep(CHECK_EVERY)
    if len(left) < len(deliveries):
        logger.info("Worker %s released %s.", worker_id, counted(len(deliveries) - len(left), "work"))
    return left


def ends_in_time(thread: threading.Thread, worker_id: str) -> bool:
    """Wait for the end of a worker that was asked to stop; return False when something hangs."""
    patience = get_settings().shutdown_grace + bounds.FAREWELL
    thread.join(patience)
    if thread.is_alive():
        log_in_time(lambda: logger.error(
            "Worker %s has not stopped within %.0f s, as the database or code of the project hangs: "
            "its works run again once their leases have lapsed. %s",
            worker_id, patience, logged("left-to-leases"),
        ))  # fmt: skip
    return not thread.is_alive()
