"""How a worker loses a work it runs, and finds out."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence

from django_ayework.define.signal import AbortReason
from django_ayework.flow.events import report
from django_ayework.rules.states import Status
from django_ayework.store.leases import Holder, holders_of
from django_ayework.worker.attempts.delivery import Delivery

logger = logging.getLogger("django_ayework")


def loss_of(delivery: Delivery, holder: Holder | None) -> AbortReason | None:
    """Return why a work is not ours any more; None when it still is (its row was only locked)."""
    if delivery.settled:
        return None
    if holder is None:
        return AbortReason.NOT_FOUND
    if holder.status == Status.CANCELLED:
        return AbortReason.CANCELLED
    if holder.status in (Status.SUCCESS, Status.DEAD):
        return AbortReason.ALREADY_COMPLETED
    if (holder.delivery, holder.worker) != (delivery.row.delivery, delivery.row.worker):
        return AbortReason.TAKEN_BY_ANOTHER_WORKER
    return None


def abort_lost(doubtful: Sequence[Delivery]) -> None:
    """Abort the attempts of those works that are not ours any more; one whose row is only locked stays."""
    holders = holders_of(delivery.row.id for delivery in doubtful) if doubtful else {}
    for delivery in doubtful:
        reason = loss_of(delivery, holders.get(delivery.row.id))
        if reason is not None and not delivery.ended:
            delivery.abort(reason)


def look_after(waiting: Iterable[Delivery], trusted_for: float) -> None:
    """See which of these works were cancelled, completed or lost while they waited to run.

    Those claimed less than ``trusted_for`` seconds ago are taken to be ours. An error is only reported, for
    the outcome of a work that is not ours is refused anyway.
    """
    before = time.monotonic() - trusted_for
    doubtful = [delivery for delivery in waiting if delivery.claimed_at < before]
    try:
        abort_lost(doubtful)
    except Exception as error:
        report(error, "queue", f"{len(doubtful)} works could not be looked at before they run")


def log_refused(deliveries: Sequence[Delivery]) -> None:
    """Log that outcomes came too late. After a cancellation that is to be expected, so it is no warning."""
    cancelled = cancelled_among(deliveries)
    for delivery in deliveries:
        if delivery.row.id in cancelled:
            logger.info("The outcome of work %s came too late: the work was cancelled.", delivery.row.id)
        else:
            logger.warning(
                "The outcome of work %s came too late: somebody else has moved the work.", delivery.row.id
            )


def cancelled_among(deliveries: Sequence[Delivery]) -> set[str]:
    """Return which works that are not ours any more were cancelled, as far as that can be found out."""
    told = {each.row.id for each in deliveries if each.signal.reason is AbortReason.CANCELLED}
    unclear = [each.row.id for each in deliveries if each.row.id not in told]
    try:
        holders = holders_of(unclear) if unclear else {}
    except Exception as error:
        report(error, "queue", f"{len(unclear)} works could not be looked up", brief=True)
        holders = {}
    return told | {id for id, holder in holders.items() if holder.status == Status.CANCELLED}


def warn_if_late(delivery: Delivery, act: str) -> None:
    """Log that a work was, say, "settled" although its lease had lapsed: nobody else had taken it."""
    if delivery.has_lapsed(time.monotonic()):
        logger.warning(
            "The lease of work %s had lapsed when it was %s; nobody had taken the work.", delivery.row.id, act
        )
