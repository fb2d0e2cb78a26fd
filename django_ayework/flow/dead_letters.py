"""Finding dead letters."""

from __future__ import annotations

from django_ayework.models import Work
from django_ayework.rules.states import Status
from django_ayework.store.database import rows
from django_ayework.store.stand_ins import ended_as


def dead_ids(type: str | None = None, reason: str | None = None) -> list[str]:
    """Return the ids of dead works, the longest dead first, so that what died first is retried first."""
    dead = ended_as(rows(Work), Status.DEAD).order_by("moment", "id")
    if type:
        dead = dead.filter(type=type)
    if reason:
        dead = dead.filter(reason=reason)
    return list(dead.values_list("id", flat=True))
