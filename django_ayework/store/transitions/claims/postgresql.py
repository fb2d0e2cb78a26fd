"""Claiming on PostgreSQL: one statement, its own transaction."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from django_ayework.models import Work
from django_ayework.store.arrays import array_text
from django_ayework.store.database import fetch
from django_ayework.store.lanes import PARTIAL
from django_ayework.store.rows import READ, WorkRow
from django_ayework.store.transitions.claims.lease import LEASE, Lease, rows_from

WORK = Work._meta.db_table
IN_LANE = PARTIAL.order

#: A lease need not be on disk before its work starts: if the server crashes, the work is pending again, as if
#: the lease had lapsed. An outcome is waited for, and the lease with it, which comes before it in the log.
AT_EASE = "FROM (SELECT set_config('synchronous_commit', 'off', true)) AS ease"

#: The subselect picks and locks in the index's order; ARRAY() makes the planner run it exactly once.
CLAIM = f"{LEASE} {AT_EASE} WHERE id = ANY(ARRAY({{picked}})) RETURNING {', '.join(READ)}"

CLAIM_NEW = CLAIM.format(
    picked=f"""
    SELECT id FROM {WORK}
    WHERE id = ANY(%s::text[]) AND status = 'pending' AND delivery = 0
    ORDER BY id
    FOR UPDATE SKIP LOCKED
"""
)

CLAIM_LANE = CLAIM.format(picked=f"SELECT id {PARTIAL.first} FOR UPDATE SKIP LOCKED")

#: The heads of the lanes are merged without locks, which tells how many to take of each; a lane whose head is
#: taken by a rival meanwhile gives the works behind it.
CLAIM_LANES = CLAIM.format(
    picked=f"""
    SELECT taken.id
    FROM (
        SELECT head.type, count(*) AS number
        FROM (
            SELECT candidate.*
            FROM unnest(%s::text[], %s::int[]) AS lane(type, cap)
            CROSS JOIN LATERAL (
                SELECT type, priority, run_at, id FROM {WORK}
                WHERE status = 'pending' AND queue = %s AND type = lane.type
                ORDER BY {IN_LANE} LIMIT lane.cap
            ) AS candidate
            ORDER BY candidate.priority DESC, candidate.run_at, candidate.id LIMIT %s
        ) AS head
        GROUP BY head.type
    ) AS share
    CROSS JOIN LATERAL (
        SELECT id FROM {WORK}
        WHERE status = 'pending' AND queue = %s AND type = share.type
        ORDER BY {IN_LANE} LIMIT share.number
        FOR UPDATE SKIP LOCKED
    ) AS taken
"""
)


def claim_lanes(queue: str, caps: Mapping[str, int], limit: int, lease: Lease) -> list[WorkRow]:
    """Lease the first works of some lanes; see ``claim()``."""
    if len(caps) == 1:
        found = fetch(CLAIM_LANE, (*lease, queue, *next(iter(caps.items()))), often=True)
    else:
        types, most = array_text(list(caps)), array_text(list(caps.values()))
        found = fetch(CLAIM_LANES, (*lease, types, most, queue, limit, queue), often=True)
    return rows_from(found, lease)


def claim_new(ids: Collection[str], lease: Lease) -> list[WorkRow]:
    """Lease those of these works that nobody has claimed; see ``claim_new()``."""
    return rows_from(fetch(CLAIM_NEW, (*lease, array_text(list(ids))), often=True), lease)
