"""Claiming on SQLite 3.35 and later: a statement for each lane."""

from __future__ import annotations

from django_ayework.store.database import fetch, stored_moment
from django_ayework.store.lanes import PARTIAL
from django_ayework.store.rows import MOMENTS_READ, READ, WorkRow
from django_ayework.store.transitions.claims.lease import LEASE, Lease, rows_from_texts

#: Moments are asked for as texts: Django's converter for its own type takes longer than the rest of the row.
#: The lane's index tells rowids, by which rows are found at once; an id is looked up in an index before.
CLAIM_LANE = f"""
{LEASE} WHERE rowid IN (SELECT rowid {PARTIAL.first})
RETURNING {", ".join(f"{name} || ''" if place in MOMENTS_READ else name for place, name in enumerate(READ))}
"""


def claim_lane(queue: str, type: str, number: int, lease: Lease) -> list[WorkRow]:
    """Lease the first works of a lane."""
    written = (lease.worker, stored_moment(lease.leased_until), stored_moment(lease.started_at))
    return list(rows_from_texts(fetch(CLAIM_LANE, (*written, queue, type, number)), lease))
