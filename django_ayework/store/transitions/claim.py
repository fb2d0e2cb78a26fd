"""Claiming: the next due works of a queue become running, leased to one worker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, tzinfo
from typing import Any

from django_ayework.models import Work
from django_ayework.rules.states import Status
from django_ayework.store.arrays import array_text
from django_ayework.store.bulk import update_by_column, write
from django_ayework.store.database import (
    atomic,
    chunked,
    connection,
    fetch,
    has_returning,
    is_postgresql,
    rows,
    stored_moment,
    vendor,
)
from django_ayework.store.lanes import IN_LANE, STAND_IN, queue_column
from django_ayework.store.rows import EMPTY, MOMENTS_READ, READ, WorkRow, rows_of
from django_ayework.store.stand_ins import pending

WORK = Work._meta.db_table
NOTHING = (None,) * len(EMPTY)

LEASE = f"""
UPDATE {WORK}
SET status = 'running', attempt = attempt + 1, delivery = delivery + 1,
    worker = %s, leased_until = %s, started_at = %s
"""

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

CLAIM_LANE = CLAIM.format(
    picked=f"""
    SELECT id FROM {WORK}
    WHERE status = 'pending' AND queue = %s AND type = %s
    ORDER BY {IN_LANE} LIMIT %s
    FOR UPDATE SKIP LOCKED
"""
)

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

#: Moments are asked for as texts: Django's converter for its own type takes longer than the rest of the row.
#: The lane's index tells rowids, by which rows are found at once; an id is looked up in an index before.
CLAIM_LANE_SQLITE = f"""
{LEASE} WHERE rowid IN (
    SELECT rowid FROM {WORK}
    WHERE status = 'pending' AND queue = %s AND type = %s
    ORDER BY {IN_LANE} LIMIT %s
)
RETURNING {", ".join(f"{name} || ''" if place in MOMENTS_READ else name for place, name in enumerate(READ))}
"""

#: The same of a row that is written after it was read. A driver in Python makes moments slowly, too.
READ_AHEAD = {"attempt": "attempt + 1", "delivery": "delivery + 1"} | {
    READ[place]: f"CAST({READ[place]} AS CHAR)" for place in MOMENTS_READ
}
LOCK_LANE_MYSQL = f"""
SELECT {", ".join(READ_AHEAD.get(name, name) for name in READ)} FROM {WORK}
WHERE {STAND_IN.pending} = %s AND type = %s
ORDER BY {IN_LANE} LIMIT %s
FOR UPDATE SKIP LOCKED
"""


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
    claimed = claim_set_based if is_postgresql() else claim_under_locks
    works = claimed(queue, caps, limit, worker, now, leased_until)
    return sorted(works, key=lambda row: (-row.priority, row.sort_key, row.run_at, row.id))


def claim_set_based(
    queue: str, caps: Mapping[str, int], limit: int, worker: str, now: datetime, leased_until: datetime
) -> list[WorkRow]:
    """One statement, its own transaction."""
    lease = (worker, leased_until, now)
    if len(caps) == 1:
        found = fetch(CLAIM_LANE, (*lease, queue, *next(iter(caps.items()))), often=True)
    else:
        found = fetch(
            CLAIM_LANES,
            (*lease, array_text(list(caps)), array_text(list(caps.values())), queue, limit, queue),
            often=True,
        )
    return rows_from(found, lease)


def rows_from(found: Iterable[tuple[Any, ...]], lease: tuple[str, datetime, datetime]) -> list[WorkRow]:
    """Return what a statement returned as rows, with the lease that it has written."""
    written = (*NOTHING, str(Status.RUNNING), *lease)
    return [WorkRow._make(values + written) for values in found]


def claim_new(ids: Collection[str], worker: str, now: datetime, leased_until: datetime) -> list[WorkRow]:
    """Lease those of these works that are due and that nobody has ever claimed; return them by id.

    Rows that others have locked are skipped: whoever they are, they are about to move the work.
    """
    if is_postgresql():
        lease = (worker, leased_until, now)
        return rows_from(fetch(CLAIM_NEW, (*lease, array_text(list(ids))), often=True), lease)
    with atomic():
        new = rows(Work).filter(id__in=list(ids), status=Status.PENDING, delivery=0).order_by("id")
        works = rows_of(new.select_for_update(skip_locked=True))
        return leased(works, worker, now, leased_until)


def claim_under_locks(
    queue: str, caps: Mapping[str, int], limit: int, worker: str, now: datetime, leased_until: datetime
) -> list[WorkRow]:
    """Lock the candidates, then write them; on SQLite the transaction itself is the lock."""
    if has_returning() and len(caps) == 1:
        return claim_lane_of_sqlite(queue, *next(iter(caps.items())), worker, now, leased_until)
    with atomic():
        shares = caps if len(caps) == 1 else shares_of_lanes(queue, caps, limit)
        lanes = [claim_lane(queue, *lane, worker, now, leased_until) for lane in shares.items()]
        return [row for lane in lanes for row in lane]


def claim_lane(
    queue: str, type: str, number: int, worker: str, now: datetime, leased_until: datetime
) -> list[WorkRow]:
    """Lease the first works of a lane that nobody else has locked, in this transaction."""
    if has_returning():
        return claim_lane_of_sqlite(queue, type, number, worker, now, leased_until)
    if vendor() == "mysql":
        return claim_lane_of_mysql(queue, type, number, worker, now, leased_until)
    return leased(lock_lane(queue, type, number), worker, now, leased_until)


def claim_lane_of_sqlite(
    queue: str, type: str, number: int, worker: str, now: datetime, leased_until: datetime
) -> list[WorkRow]:
    """Lease the first works of a lane in one statement."""
    lease = (worker, stored_moment(leased_until), stored_moment(now))
    found = fetch(CLAIM_LANE_SQLITE, (*lease, queue, type, number))
    return list(rows_from_texts(found, (worker, leased_until, now), connection().timezone))


def claim_lane_of_mysql(
    queue: str, type: str, number: int, worker: str, now: datetime, leased_until: datetime
) -> list[WorkRow]:
    """Lock the first works of a lane, and write their lease; no statement does both."""
    found = fetch(LOCK_LANE_MYSQL, (queue, type, number))
    lease = (worker, leased_until, now)
    locked = list(rows_from_texts(found, lease, connection().timezone))
    write_lease(locked, *lease)
    return locked


def rows_from_texts(
    found: Iterable[tuple[Any, ...]], lease: tuple[str, datetime, datetime], zone: tzinfo | None
) -> Iterator[WorkRow]:
    """See rows_from(); moments are made of their texts, of which works queued together share many."""
    made: dict[str | None, datetime | None] = {None: None}
    written = (*NOTHING, str(Status.RUNNING), *lease)
    for values in found:
        columns = [*values, *written]
        for place in MOMENTS_READ:
            text = columns[place]
            if text not in made:
                made[text] = datetime.fromisoformat(text).replace(tzinfo=zone)
            columns[place] = made[text]
        yield WorkRow._make(columns)


def leased(works: list[WorkRow], worker: str, now: datetime, leased_until: datetime) -> list[WorkRow]:
    """Write the lease of works that this transaction has locked; return them as they are then."""
    held = [
        row._replace(
            status=Status.RUNNING,
            attempt=row.attempt + 1,
            delivery=row.delivery + 1,
            worker=worker,
            leased_until=leased_until,
            started_at=now,
        )
        for row in works
    ]
    write_lease(held, worker, leased_until, now)
    return held


def write_lease(works: list[WorkRow], worker: str, leased_until: datetime, now: datetime) -> None:
    """Write what the claim of these works changes, which this transaction has locked."""
    if works:
        counts = {"attempt": [row.attempt for row in works], "delivery": [row.delivery for row in works]}
        lease = {"status": "running", "worker": worker, "leased_until": leased_until, "started_at": now}
        write(Work, update_by_column([row.id for row in works], counts, lease))


def lock_lane(queue: str, type: str, number: int) -> list[WorkRow]:
    """Lock the first works of a lane that nobody else has locked."""
    first = pending(rows(Work), queue, type).order_by("-priority", "sort_key", "run_at", "id")
    return rows_of(first.select_for_update(skip_locked=True)[:number])


#: Lanes in one statement; SQLite allows 500 parts.
LANES = 100


def shares_of_lanes(queue: str, caps: Mapping[str, int], limit: int) -> Mapping[str, int]:
    """Return how many works to take of each lane so that those of the queue come in order."""
    head = (
        f"SELECT * FROM (SELECT priority, run_at, id, type FROM {WORK} "
        f"WHERE {queue_column().pending} = %s AND type = %s ORDER BY {IN_LANE} LIMIT %s) AS head"
    )
    heads: list[tuple[int, object, str, str]] = []
    for some in chunked(list(caps.items()), LANES):
        params = [param for lane in some for param in (queue, *lane)]
        heads += [(-row[0], *row[1:]) for row in fetch(" UNION ALL ".join([head] * len(some)), params)]
    return Counter(type for *_, type in sorted(heads)[:limit])
