"""Claiming: the next due works of a queue become running, leased to one worker."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime

from django_ayework.store.database import is_postgresql, vendor
from django_ayework.store.rows import WorkRow
from django_ayework.store.transitions.claims import mysql, portable, postgresql
from django_ayework.store.transitions.claims.lease import Lease


def claim(
    queue: str, caps: Mapping[str, int], limit: int, worker: str, now: datetime, leased_until: datetime
) -> list[WorkRow]:
    """Lease up to ``limit`` due works of a queue, of each type in ``caps`` at most so many.

    By priority, then age, whatever their type; within a type that is ordered by units, by priority, then
    unit. Returned in that order. Nobody waits for a rival: rows locked by another claim are skipped.
    """
    caps = {type: min(cap, limit) for type, cap in caps.items() if cap > 0}
    if not caps or limit <= 0:
        return []
    works = claim_lanes()(queue, caps, limit, Lease(worker, leased_until, now))
    return sorted(works, key=lambda row: (-row.priority, row.sort_key, row.run_at, row.id))


def claim_lanes() -> Callable[[str, Mapping[str, int], int, Lease], list[WorkRow]]:
    """Return the way to claim that suits the database."""
    if is_postgresql():
        return postgresql.claim_lanes
    return mysql.claim_lanes if vendor() == "mysql" else portable.claim_lanes


def claim_new(ids: Collection[str], worker: str, now: datetime, leased_until: datetime) -> list[WorkRow]:
    """Lease those of these works that are due and that nobody has ever claimed; return them by id.

    Rows that others have locked are skipped: whoever they are, they are about to move the work.
    """
    claim_some = postgresql.claim_new if is_postgresql() else portable.claim_new
    return claim_some(ids, Lease(worker, leased_until, now))
