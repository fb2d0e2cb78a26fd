"""Claiming on any database: lock the candidates, then write them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from django_ayework.models import Work
from django_ayework.rules.states import Status
from django_ayework.store.database import atomic, has_returning, rows
from django_ayework.store.lanes import heads_of, shares_of
from django_ayework.store.rows import WorkRow, rows_of
from django_ayework.store.stand_ins import pending
from django_ayework.store.transitions.claims import sqlite
from django_ayework.store.transitions.claims.lease import Lease, leased


def claim_lanes(queue: str, caps: Mapping[str, int], limit: int, lease: Lease) -> list[WorkRow]:
    """Lease the first works of some lanes; see ``claim()``. On SQLite the transaction itself is the lock."""
    claim_lane = sqlite.claim_lane if has_returning() else lock_and_lease_lane
    if len(caps) == 1:
        return claim_lane(queue, *next(iter(caps.items())), lease)
    with atomic():
        shares = shares_of(heads_of(queue, caps), limit)
        return [row for lane in shares.items() for row in claim_lane(queue, *lane, lease)]


def lock_and_lease_lane(queue: str, type: str, number: int, lease: Lease) -> list[WorkRow]:
    """Lease the first works of a lane that nobody else has locked."""
    with atomic():
        first = pending(rows(Work), queue, type)[:number]
        return leased(rows_of(first.select_for_update(skip_locked=True)), lease)


def claim_new(ids: Collection[str], lease: Lease) -> list[WorkRow]:
    """Lease those of these works that nobody has claimed; see ``claim_new()``."""
    with atomic():
        new = rows(Work).filter(id__in=list(ids), status=Status.PENDING, delivery=0).order_by("id")
        return leased(rows_of(new.select_for_update(skip_locked=True)), lease)
