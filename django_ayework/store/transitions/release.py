"""Releasing: claimed works go back unharmed, their attempt given back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any

from django.db.models import F

from django_ayework.models import Work
from django_ayework.rules.states import Status
from django_ayework.store.database import in_own_transaction, rows


def release(
    deliveries: Mapping[str, int], worker: str, run_at: datetime | None = None, error: str | None = None
) -> int:
    """Give works back that this worker holds at these deliveries: pending, or scheduled for ``run_at``.

    ``error``, if given, is what they show meanwhile.

    Return how many; those that others took meanwhile are left alone.
    """
    changes: dict[str, Any] = {"status": Status.PENDING}
    if run_at is not None:
        changes = {"status": Status.SCHEDULED, "run_at": run_at}
    if error is not None:
        changes["error"] = error
    return in_own_transaction(partial(release_here, deliveries, worker, changes))


def release_here(deliveries: Mapping[str, int], worker: str, changes: Mapping[str, Any]) -> int:
    """One UPDATE for all works at one delivery."""
    released = 0
    held = rows(Work).filter(worker=worker, status=Status.RUNNING)
    for delivery in set(deliveries.values()):
        ids = [id for id, held_at in deliveries.items() if held_at == delivery]
        released += held.filter(id__in=ids, delivery=delivery).update(
            attempt=F("attempt") - 1, worker=None, leased_until=None, **changes
        )
    return released
