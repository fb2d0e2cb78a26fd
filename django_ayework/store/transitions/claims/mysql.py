"""Claiming on MySQL and MariaDB: find the first works without locks, lock those, write their lease.

What a claim takes leaves its entry in the lanes' index behind, marked as deleted, until the server purges it:
about a second's worth of works stand dead at the head of a lane. A statement that locks looks up the row of
each, to learn whether somebody holds it; one that reads what is not committed passes over them. Locks are the
same at that isolation as at READ COMMITTED.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from django_ayework.models import Work
from django_ayework.store.database import alias, atomic, connection, fetch
from django_ayework.store.lanes import STAND_INS, heads_of, shares_of
from django_ayework.store.rows import MOMENTS_READ, READ, WorkRow
from django_ayework.store.sources import Source, source_of
from django_ayework.store.transitions.claims.lease import Lease, rows_from_texts, write_lease

WORK = Work._meta.db_table

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


def claim_lanes(queue: str, caps: Mapping[str, int], limit: int, lease: Lease) -> list[WorkRow]:
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
    shares = shares_of(heads, limit)
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
    shares = caps if len(caps) == 1 else shares_of(heads_of(queue, caps), limit)
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
