"""Parking: a work of a type unknown here is offered again later, as another worker may know it."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from django_ayework.define.registry import registry
from django_ayework.rules.unknown import OFFER_AGAIN, if_renamed, parked_again
from django_ayework.store import transitions
from django_ayework.store.clock import clock
from django_ayework.store.rows import WorkRow
from django_ayework.worker.attempts.attempt import is_parked
from django_ayework.worker.attempts.delivery import Delivery

logger = logging.getLogger("django_ayework")


def told_apart(claimed: Iterable[Delivery]) -> tuple[list[Delivery], list[Delivery]]:
    """Return the works that can run here, and those that may be for others."""
    known: list[Delivery] = []
    unknown: list[Delivery] = []
    for delivery in claimed:
        (unknown if is_parked(delivery.row) else known).append(delivery)
    return known, unknown


def park(deliveries: Iterable[Delivery], worker_id: str) -> None:
    """Give claimed works back, to be offered again in a while."""
    for delivery in deliveries:
        park_row(delivery.row, worker_id)


def park_row(row: WorkRow, worker_id: str) -> None:
    """Give a claimed work back, to be offered again in a while."""
    now = clock.now()
    logger.warning(
        "Work %s has the type %r, which is unknown here. %s %s",
        row.id, row.type, if_renamed(row.type, registry.names()), registry.loaded(),
    )  # fmt: skip
    error = parked_again(row.error, now)
    transitions.release({row.id: row.delivery}, worker_id, now + OFFER_AGAIN, error)
