"""Claiming: the next due works of a queue become running, leased to one worker.

There are three ways. PostgreSQL picks, locks and writes in one statement. SQLite needs no locks: one UPDATE
for each lane returns the works. MariaDB and MySQL lock the works of the lanes, and then write their lease.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

from django.db.models import QuerySet, Value
from django.db.models.functions import Concat

from django_ayework.conf import get_settings
from django_ayework.models import Work
from django_ayework.rules.durations import later
from django_ayework.rules.states import Status
from django_ayework.store.database import clock, connection, dialect, fetch, own_transaction, rows
from django_ayework.store.dialects import array_text
from django_ayework.store.lanes import (
    FIRST_OF_LANE,
    IN_LANE,
    ORDER_IN_LANE,
    allocate,
    as_moment,
    fetch_each,
    heads_of,
)
from django_ayework.store.many_rows import update_by_column, write
from django_ayework.store.rows import EMPTY, READ, WorkRow, rows_of

WORK = Work._meta.db_table
NOTHING = (None,) * len(EMPTY)


class Lease(NamedTuple):
    """Who holds works, until when and since when. The fields are in the order of LEASE, and end a WorkRow."""

    worker: str
    leased_until: datetime
    started_at: datetime


def new_lease(worker: str) -> Lease:
    """Return a lease that begins now and is as long as the settings say."""
    now = clock.now()
    return Lease(worker, later(now, get_settings().lease), now)


def claim(queue: str, caps: Mapping[str, int], limit: int, lease: Lease) -> list[WorkRow]:
    """Lease up to ``limit`` due works of a queue, of each type in ``caps`` at most so many.

    By priority, then age, whatever their type; within a type that is ordered by units, by priority, then
    unit. Returned in that order. No rival is waited for: rows locked by another claim are skipped.
    """
    caps = {type: min(cap, limit) for type, cap in caps.items() if cap > 0}
    if not caps or limit <= 0:
        return []
    if dialect().has_arrays:
        works = claim_lanes_at_once(queue, caps, limit, lease)
    elif len(caps) == 1:
        works = claim_lane(queue, *next(iter(caps.items())), lease)
    else:
        works = claim_lanes(queue, caps, limit, lease)
    return sorted(works, key=lambda row: (-row.priority, row.sort_key, row.run_at, row.id))


def claim_new(ids: Collection[str], lease: Lease) -> list[WorkRow]:
    """Lease those of these works that are due and were never claimed; return them by id.

    Rows that other transactions have locked are skipped: those are about to move the work.
    """
    if dialect().has_arrays:
        return rows_leased(fetch(CLAIM_NEW, (*lease, array_text(list(ids))), often=True), lease)
    new = rows(Work).filter(id__in=ids, status=Status.PENDING, delivery=0).order_by("id")
    return lock_and_lease(new, lease)


def claim_delivered(
    ids: Collection[str], queues: Collection[str], types: Collection[str], lease: Lease
) -> list[WorkRow]:
    """Lease those of these works that are pending in these queues, of these types; return them by id.

    Rows that other transactions have locked are skipped, as in ``claim()``. The status is compared as an
    expression, so that no database reads the index of a lane, which has all its pending works.
    """
    if dialect().has_arrays:
        names = (array_text(list(ids)), array_text(list(queues)), array_text(list(types)))
        return rows_leased(fetch(CLAIM_DELIVERED, (*lease, *names), often=True), lease)
    named = rows(Work).filter(id__in=ids).annotate(now=Concat("status", Value("")))
    pending = named.filter(now=Status.PENDING, queue__in=queues, type__in=types)
    return lock_and_lease(pending.order_by("id"), lease)


# In one statement, which is its own transaction.

LEASE = f"""
UPDATE {WORK}
SET status = 'running', attempt = attempt + 1, delivery = delivery + 1,
    worker = %s, leased_until = %s, started_at = %s
"""

#: A lease need not be on disk before its work starts: if the server crashes, the work is pending again, as if
#: the lease had lapsed. An outcome is waited for, and with it the lease, which comes before it in the log.
ASYNCHRONOUS = "FROM (SELECT set_config('synchronous_commit', 'off', true)) AS asynchronous"

#: The subselect picks and locks in the index's order; ARRAY() makes the planner run it exactly once.
CLAIM = f"{LEASE} {ASYNCHRONOUS} WHERE id = ANY(ARRAY({{picked}})) RETURNING {', '.join(READ)}"

NAMED = f"SELECT id FROM {WORK} WHERE id = ANY(%s::text[]) AND {{which}} ORDER BY id FOR UPDATE SKIP LOCKED"
CLAIM_NEW = CLAIM.format(picked=NAMED.format(which="status = 'pending' AND delivery = 0"))
CLAIM_DELIVERED = CLAIM.format(
    picked=NAMED.format(
        which="status || '' = 'pending' AND queue = ANY(%s::text[]) AND type = ANY(%s::text[])"
    )
)

LOCK_LANE = f"SELECT id {FIRST_OF_LANE} FOR UPDATE SKIP LOCKED"
CLAIM_LANE = CLAIM.format(picked=LOCK_LANE)

#: The heads of the lanes are merged without locks, which allocates works to each lane; a lane whose head is
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
    ) AS allocation
    CROSS JOIN LATERAL (
        SELECT id FROM {WORK}
        WHERE status = 'pending' AND queue = %s AND type = allocation.type
        ORDER BY {IN_LANE} LIMIT allocation.number
        FOR UPDATE SKIP LOCKED
    ) AS taken
"""
)


def claim_lanes_at_once(queue: str, caps: Mapping[str, int], limit: int, lease: Lease) -> list[WorkRow]:
    """Lease the first works of some lanes in one statement; see ``claim()``."""
    if len(caps) == 1:
        found = fetch(CLAIM_LANE, (*lease, queue, *next(iter(caps.items()))), often=True)
    else:
        types, most = array_text(list(caps)), array_text(list(caps.values()))
        found = fetch(CLAIM_LANES, (*lease, types, most, queue, limit, queue), often=True)
    return rows_leased(found, lease)


def rows_leased(found: Iterable[tuple[Any, ...]], lease: Lease) -> list[WorkRow]:
    """Return what a statement returned as rows, with the lease that it has written."""
    written = (*NOTHING, str(Status.RUNNING), *lease)
    return [WorkRow._make(values + written) for values in found]


# Lane by lane. MariaDB and MySQL lock the works of many lanes by one statement: with two for each lane, a
# worker of 50 types ran a tenth of the works.


@own_transaction
def claim_lanes(queue: str, caps: Mapping[str, int], limit: int, lease: Lease) -> list[WorkRow]:
    """Lease the first works of some lanes in one transaction, after their heads were read."""
    allocation = allocate(heads_of(queue, caps), limit)
    if not connection().features.has_select_for_update:
        return [row for lane in allocation.items() for row in claim_lane(queue, *lane, lease)]
    locked = fetch_each(LOCK_LANE, [(queue, *lane) for lane in allocation.items()])
    return lock_and_lease(rows(Work).filter(id__in=[id for [id] in locked]), lease)


def claim_lane(queue: str, type: str, number: int, lease: Lease) -> list[WorkRow]:
    """Lease the first works of a lane that no other transaction has locked.

    SQLite takes one statement, so that its one lock is held briefly. The lane's index has rowids, by which
    rows are found at once; an id is looked up in an index before.
    """
    if not dialect().returns_updated:
        pending = rows(Work).filter(status=Status.PENDING, queue=queue, type=type)
        return lock_and_lease(pending.order_by(*ORDER_IN_LANE)[:number], lease)
    sql = f"{LEASE} WHERE rowid IN (SELECT rowid {FIRST_OF_LANE}) RETURNING {', '.join(READ)}"
    adapt = connection().ops.adapt_datetimefield_value
    written = (lease.worker, adapt(lease.leased_until), adapt(lease.started_at))
    moment: Callable[[Any], Any] = cache(as_moment)  # most works of a lane were queued together
    return [
        row._replace(
            deadline=moment(row.deadline), queued_at=moment(row.queued_at), run_at=moment(row.run_at)
        )
        for row in rows_leased(fetch(sql, (*written, queue, type, number)), lease)
    ]


@own_transaction
def lock_and_lease(works: QuerySet[Work], lease: Lease) -> list[WorkRow]:
    """Lock works that no other transaction has locked, and write their lease."""
    leased = [
        row._replace(
            status=str(Status.RUNNING), attempt=row.attempt + 1, delivery=row.delivery + 1, **lease._asdict()
        )
        for row in rows_of(works.select_for_update(skip_locked=True))
    ]
    if leased:
        names = ("status", "attempt", "delivery", *Lease._fields)
        written = {name: [getattr(row, name) for row in leased] for name in names}
        write(Work, update_by_column([row.id for row in leased], written))
    return leased
