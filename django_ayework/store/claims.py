"""Claiming: the next due works of a queue become running, leased to one worker."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, tzinfo
from typing import Any, NamedTuple

from django_ayework.models import Work
from django_ayework.rules.states import Status
from django_ayework.store.bulk import update_by_column, write
from django_ayework.store.database import (
    alias,
    atomic,
    connection,
    fetch,
    has_returning,
    is_postgresql,
    rows,
    stored_moment,
    vendor,
)
from django_ayework.store.generated_columns import pending
from django_ayework.store.lanes import PARTIAL, STAND_INS, claim_groups_of, heads_of
from django_ayework.store.parameters import Source, array_text, source_of
from django_ayework.store.rows import EMPTY, MOMENTS_READ, READ, WorkRow, rows_of

# --- lease ---
# What a claim writes, and the works as it leaves them.

WORK = Work._meta.db_table
NOTHING = (None,) * len(EMPTY)

LEASE = f"""
UPDATE {WORK}
SET status = 'running', attempt = attempt + 1, delivery = delivery + 1,
    worker = %s, leased_until = %s, started_at = %s
"""


class Lease(NamedTuple):
    """Who holds works, until when, and since when; in the order of LEASE and of a row's last columns."""

    worker: str
    leased_until: datetime
    started_at: datetime


def rows_from(found: Iterable[tuple[Any, ...]], lease: Lease) -> list[WorkRow]:
    """Return what a statement returned as rows, with the lease that it has written."""
    written = (*NOTHING, str(Status.RUNNING), *lease)
    return [WorkRow._make(values + written) for values in found]


def rows_from_texts(found: Iterable[tuple[Any, ...]], lease: Lease) -> Iterator[WorkRow]:
    """See rows_from(); moments are made of their texts, of which works queued together share many."""
    zone: tzinfo | None = connection().timezone
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


def leased(works: Iterable[WorkRow], lease: Lease) -> list[WorkRow]:
    """Write the lease of works that this transaction has locked; return them as they are then."""
    held = [
        row._replace(
            status=Status.RUNNING, attempt=row.attempt + 1, delivery=row.delivery + 1, **lease._asdict()
        )
        for row in works
    ]
    write_lease(held, lease)
    return held


def write_lease(works: list[WorkRow], lease: Lease) -> None:
    """Write what the claim of these works changes, which this transaction has locked."""
    if works:
        counts = {"attempt": [row.attempt for row in works], "delivery": [row.delivery for row in works]}
        shared = {"status": str(Status.RUNNING), **lease._asdict()}
        write(Work, update_by_column([row.id for row in works], counts, shared))


# --- postgresql ---
# Claiming on PostgreSQL: one statement, its own transaction.

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


def claim_lanes_postgresql(queue: str, caps: Mapping[str, int], limit: int, lease: Lease) -> list[WorkRow]:
    """Lease the first works of some lanes; see ``claim()``."""
    if len(caps) == 1:
        found = fetch(CLAIM_LANE, (*lease, queue, *next(iter(caps.items()))), often=True)
    else:
        types, most = array_text(list(caps)), array_text(list(caps.values()))
        found = fetch(CLAIM_LANES, (*lease, types, most, queue, limit, queue), often=True)
    return rows_from(found, lease)


def claim_new_postgresql(ids: Collection[str], lease: Lease) -> list[WorkRow]:
    """Lease those of these works that nobody has claimed; see ``claim_new()``."""
    return rows_from(fetch(CLAIM_NEW, (*lease, array_text(list(ids))), often=True), lease)


# --- sqlite ---
# Claiming on SQLite 3.35 and later: a statement for each lane.

#: Moments are asked for as texts: Django's converter for its own type takes longer than the rest of the row.
#: The lane's index tells rowids, by which rows are found at once; an id is looked up in an index before.
CLAIM_LANE_SQLITE = f"""
{LEASE} WHERE rowid IN (SELECT rowid {PARTIAL.first})
RETURNING {", ".join(f"{name} || ''" if place in MOMENTS_READ else name for place, name in enumerate(READ))}
"""


def claim_lane_sqlite(queue: str, type: str, number: int, lease: Lease) -> list[WorkRow]:
    """Lease the first works of a lane."""
    written = (lease.worker, stored_moment(lease.leased_until), stored_moment(lease.started_at))
    return list(rows_from_texts(fetch(CLAIM_LANE_SQLITE, (*written, queue, type, number)), lease))


# --- portable ---
# Claiming on any database: lock the candidates, then write them.


def claim_lanes_under_locks(queue: str, caps: Mapping[str, int], limit: int, lease: Lease) -> list[WorkRow]:
    """Lease the first works of some lanes; see ``claim()``. On SQLite the transaction itself is the lock."""
    claim_lane = claim_lane_sqlite if has_returning() else lock_and_lease_lane
    if len(caps) == 1:
        return claim_lane(queue, *next(iter(caps.items())), lease)
    with atomic():
        shares = claim_groups_of(heads_of(queue, caps), limit)
        return [row for lane in shares.items() for row in claim_lane(queue, *lane, lease)]


def lock_and_lease_lane(queue: str, type: str, number: int, lease: Lease) -> list[WorkRow]:
    """Lease the first works of a lane that nobody else has locked."""
    with atomic():
        first = pending(rows(Work), queue, type)[:number]
        return leased(rows_of(first.select_for_update(skip_locked=True)), lease)


def claim_new_under_locks(ids: Collection[str], lease: Lease) -> list[WorkRow]:
    """Lease those of these works that nobody has claimed; see ``claim_new()``."""
    with atomic():
        new = rows(Work).filter(id__in=list(ids), status=Status.PENDING, delivery=0).order_by("id")
        return leased(rows_of(new.select_for_update(skip_locked=True)), lease)


# --- mysql ---
# Claiming on MySQL and MariaDB: find the first works without locks, lock those, write their lease.
#
# What a claim takes leaves its entry in the lanes' index behind, marked as deleted, until the server
# purges it:
# about a second's worth of works stand dead at the head of a lane. A statement that locks looks up the
# row of
# each, to learn whether somebody holds it; one that reads what is not committed passes over them. Locks
# are the
# same at that isolation as at READ COMMITTED.

#: Moments are asked for as texts: a driver in Python makes moments slowly. What the lease counts is written
#: after it was read.
READ_AHEAD = {"attempt": "attempt + 1", "delivery": "delivery + 1"} | {
    READ[place]: f"CAST({READ[place]} AS CHAR)" for place in MOMENTS_READ
}
COLUMNS = ", ".join(READ_AHEAD.get(name, name) for name in READ)
PLACE_OF_ID = READ.index("id")

#: The heads come first, in their order, and each row is looked up. One that cannot be locked, or is not what
#: it was read as, is a row of nothing.
LOCK_HEADS = f"""
SELECT {COLUMNS} FROM {{heads}} LEFT JOIN {WORK} AS w FORCE INDEX (PRIMARY)
ON w.id = v.v0 AND w.status = 'pending' AND w.queue = %s
FOR UPDATE SKIP LOCKED
"""
LOCK_LANE = f"SELECT {COLUMNS} {STAND_INS.first} FOR UPDATE SKIP LOCKED"
#: The same from a place in the order on; MySQL and MariaDB use no index for a comparison of rows.
LOCK_LANE_FROM = LOCK_LANE.replace(
    " ORDER BY ",
    " AND (pending_rank > %s OR pending_rank = %s AND pending_sort_key > %s"
    " OR pending_rank = %s AND pending_sort_key = %s AND moment >= %s) ORDER BY ",
)
PLACE = f"SELECT pending_rank, pending_sort_key, moment FROM {WORK} WHERE id = %s"

#: A search that takes longer has passed over many works that are not committed. For so many seconds, searches
#: of that lane begin where it found something.
SLOW, REMEMBERED = 0.005, 1.0


class Place(NamedTuple):
    """Where in its lane the first work stood that a search could lock, and until when that counts."""

    rank: int
    sort_key: str
    moment: Any
    until: float

    @property
    def params(self) -> tuple[Any, ...]:
        """The parameters of LOCK_LANE_FROM, between those of a lane and the number of works."""
        return (self.rank, self.rank, self.sort_key, self.rank, self.sort_key, self.moment)


#: By alias, queue and type.
places: dict[tuple[str, str, str], Place] = {}


def claim_lanes_mysql(queue: str, caps: Mapping[str, int], limit: int, lease: Lease) -> list[WorkRow]:
    """Lease the first works of some lanes; see ``claim()``.

    If one of them cannot be locked, because it is not committed yet or a rival was quicker, the others are
    leased, and more are looked for under locks, in these lanes and in those that had no share. Such a search
    looks up the lock of each work on its way: a caller's transaction may have queued any number.
    """
    with reading_uncommitted():
        found = lock_heads(queue, heads_in(queue, caps, limit))
        free = [row for row in found if row[PLACE_OF_ID] is not None]
        if len(free) == len(found):
            return leased_from(found, lease)
    with atomic():
        ids = [row[PLACE_OF_ID] for row in free]
        again = lock_heads(queue, source_of([Work._meta.pk], [ids])) if ids else []
        taken = leased_from([row for row in again if row[PLACE_OF_ID] is not None], lease)
        got = Counter(row.type for row in taken)
        left = {type: cap - got[type] for type, cap in caps.items() if cap > got[type]}
        return taken + leased_from(lock_first(queue, left, limit - len(taken), bool(taken)), lease)


@contextmanager
def reading_uncommitted() -> Generator[None]:
    """A transaction that reads what is there, committed or not; within another one, the isolation stays.

    It is said inside: a proxy that lends sessions to statements would leave it to a stranger's transaction.
    """
    is_outermost = connection().get_autocommit()
    with atomic():
        if is_outermost:
            with connection().cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
        yield


def heads_in(queue: str, caps: Mapping[str, int], limit: int) -> Source:
    """Return the ids of the works to claim, of each lane its share; those of one alone are yet to be read."""
    if len(caps) == 1:
        return Source(f"(SELECT id AS v0 {STAND_INS.first}) AS v", [queue, *next(iter(caps.items()))])
    heads = heads_of(queue, caps)
    shares = claim_groups_of(heads, limit)
    lanes: dict[str, list[str]] = {type: [] for type in shares}
    for head in heads:
        if head.type in lanes:
            lanes[head.type].append(head.id)
    return source_of([Work._meta.pk], [[id for type, ids in lanes.items() for id in ids[: shares[type]]]])


def lock_heads(queue: str, heads: Source) -> list[tuple[Any, ...]]:
    """Lock those of some works that are pending in a queue and that nobody else has locked."""
    return fetch(LOCK_HEADS.format(heads=heads.sql), [*heads.params, queue])


def lock_first(queue: str, caps: Mapping[str, int], limit: int, has_some: bool) -> list[tuple[Any, ...]]:
    """Lock the first works of lanes that are committed and that nobody else has locked.

    When that finds nothing at all, works before the remembered places are looked for, too.
    """
    if limit <= 0:
        return []
    shares = caps if len(caps) == 1 else claim_groups_of(heads_of(queue, caps), limit)
    found = [row for type, number in shares.items() for row in lock_lane(queue, type, min(number, limit))]
    if found or has_some or not any(places.pop((alias(), queue, type), None) for type in shares):
        return found
    return [row for type, number in shares.items() for row in lock_lane(queue, type, min(number, limit))]


def lock_lane(queue: str, type: str, number: int) -> list[tuple[Any, ...]]:
    """Lock the first works of a lane, from the remembered place on if there is one."""
    began = time.monotonic()
    key = (alias(), queue, type)
    place = places.get(key)
    if place is not None and began < place.until:
        return fetch(LOCK_LANE_FROM, (queue, type, *place.params, number))
    found = fetch(LOCK_LANE, (queue, type, number))
    places.pop(key, None)
    if found and time.monotonic() - began > SLOW:
        [(rank, sort_key, moment)] = fetch(PLACE, (found[0][PLACE_OF_ID],))
        places[key] = Place(rank, sort_key, moment, time.monotonic() + REMEMBERED)
    return found


def leased_from(found: list[tuple[Any, ...]], lease: Lease) -> list[WorkRow]:
    """Write the lease of works that were found and locked; return them as they are then."""
    locked = list(rows_from_texts(found, lease))
    write_lease(locked, lease)
    return locked


# --- claim ---
# Claiming: the next due works of a queue become running, leased to one worker.


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
        return claim_lanes_postgresql
    return claim_lanes_mysql if vendor() == "mysql" else claim_lanes_under_locks


def claim_new(ids: Collection[str], worker: str, now: datetime, leased_until: datetime) -> list[WorkRow]:
    """Lease those of these works that are due and that nobody has ever claimed; return them by id.

    Rows that others have locked are skipped: whoever they are, they are about to move the work.
    """
    claim_some = claim_new_postgresql if is_postgresql() else claim_new_under_locks
    return claim_some(ids, Lease(worker, leased_until, now))
