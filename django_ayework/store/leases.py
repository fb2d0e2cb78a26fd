"""Leases: a worker that stays silent for too long loses its works."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from django_ayework.models import Work
from django_ayework.rules.states import Status
from django_ayework.store.database import atomic, chunked, rows
from django_ayework.store.rows import WorkRow, rows_of


class Holder(NamedTuple):
    """Who holds a work, and how it stands."""

    status: str
    delivery: int
    worker: str | None


def renew(deliveries: Mapping[str, int], worker: str, leased_until: datetime) -> set[str]:
    """Extend the leases this worker holds at these deliveries; return the ids renewed.

    Rows locked by a settlement are skipped: that one is about to end the lease anyway.
    """
    renewed: set[str] = set()
    for some in chunked(sorted(deliveries)):
        with atomic():
            held = rows(Work).select_for_update(skip_locked=True)
            held = held.filter(id__in=some, worker=worker, status=Status.RUNNING).order_by("id")
            ids = [id for id, delivery in held.values_list("id", "delivery") if deliveries[id] == delivery]
            rows(Work).filter(id__in=ids).update(leased_until=leased_until)
        renewed.update(ids)
    return renewed


def holders_of(ids: Iterable[str]) -> dict[str, Holder]:
    """Return who holds each work that exists."""
    found = rows(Work).filter(id__in=list(ids)).values_list("id", *Holder._fields)
    return {row[0]: Holder._make(row[1:]) for row in found}


def lock_lapsed(now: datetime, limit: int, sparing: Collection[str]) -> list[WorkRow]:
    """Lock running works whose lease has lapsed, the longest first, skipping those locked or spared."""
    lapsed = rows(Work).filter(status=Status.RUNNING, leased_until__lt=now).order_by("leased_until")
    found = rows_of(lapsed.select_for_update(skip_locked=True)[:limit])
    return [row for row in found if row.id not in sparing]


def lock_overdue(now: datetime, limit: int) -> list[WorkRow]:
    """Lock blocked works that are past their deadline."""
    overdue = rows(Work).filter(status=Status.BLOCKED, deadline__lt=now).order_by("deadline")
    return rows_of(overdue.select_for_update(skip_locked=True)[:limit])
