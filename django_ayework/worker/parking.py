"""Parking: a work of a type unknown here is offered again later, as another worker may know it."""

from __future__ import annotations

import logging

from django_ayework.define.registry import registry
from django_ayework.rules.unknown import OFFER_AGAIN, parked_again
from django_ayework.store import transitions
from django_ayework.store.clock import clock
from django_ayework.store.rows import WorkRow

logger = logging.getLogger("django_ayework")


def park(row: WorkRow, worker_id: str) -> None:
    """Give a claimed work back, to be offered again in a while."""
    now = clock.now()
    logger.warning(
        "Work %s has the type %r, which is unknown here; known are: %s.",
        row.id, row.type, ", ".join(registry.names()) or "none",
    )  # fmt: skip
    error = parked_again(row.error, now)
    transitions.release({row.id: row.delivery}, worker_id, now + OFFER_AGAIN, error)
