"""Lanes: where claims are taken from. Pending works of one queue and one type stand in one lane, in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from django_ayework.models import Work
from django_ayework.store.database import chunked, fetch, vendor

WORK = Work._meta.db_table


class LaneColumns(NamedTuple):
    """What the lanes' index calls what it has; ``is_pending`` is the condition of being in it."""

    is_pending: str
    queue: str
    type: str
    #: Minus the priority.
    rank: str
    sort_key: str
    run_at: str
    #: Within a lane: by priority, then by unit where the type is ordered by units, then by age.
    order: str

    @property
    def first(self) -> str:
        """The first works of a lane, for a SELECT: the parameters are its queue, its type, and how many."""
        in_lane = f"{self.is_pending} AND {self.queue} = %s AND {self.type} = %s"
        return f"FROM {WORK} WHERE {in_lane} ORDER BY {self.order} LIMIT %s"


PARTIAL = LaneColumns(
    is_pending="status = 'pending'",
    queue="queue",
    type="type",
    rank="-priority",
    sort_key="sort_key",
    run_at="run_at",
    order="priority DESC, sort_key, run_at, id",
)
#: See ``store.stand_ins``.
STAND_INS = LaneColumns(
    is_pending="standing = 'pending'",
    queue="pending_in",
    type="pending_type",
    rank="pending_rank",
    sort_key="pending_sort_key",
    run_at="moment",
    order="pending_rank, pending_sort_key, moment, id",
)


class Lane(NamedTuple):
    """The pending works of a type in a queue."""

    queue: str
    type: str


class Head(NamedTuple):
    """A work at the head of its lane; those of one lane sort as tuples."""

    rank: int
    sort_key: str
    run_at: Any  # as the database gives it
    id: str
    type: str


def lanes_with_work(first_queue: str | None) -> list[Lane]:
    """Return every lane with pending works, hopping from one to the next through the lanes' index.

    ``first_queue`` is the first queue with pending works, as a look has found it.
    """
    return [Lane(queue, type) for queue in queues_with_work(first_queue) for type in types_with_work(queue)]


def queues_with_work(first: str | None = "") -> list[str]:
    """Return the queues with pending works, from the first one on if it is known; none after None."""
    lane = lane_columns()
    next_queue = f"SELECT MIN({lane.queue}) FROM {WORK} WHERE {lane.is_pending} AND {lane.queue} > %s"
    queues = [first] if first else []
    while first is not None:
        first = fetch(next_queue, (first,))[0][0]
        queues += [first] if first is not None else []
    return queues


def types_with_work(queue: str) -> list[str]:
    """Return the types of which a queue has pending works."""
    lane = lane_columns()
    next_type = (
        f"SELECT MIN({lane.type}) FROM {WORK} "
        f"WHERE {lane.is_pending} AND {lane.queue} = %s AND {lane.type} > %s"
    )
    types, last = [], ""
    while (found := fetch(next_type, (queue, last))[0][0]) is not None:
        types.append(found)
        last = found
    return types


#: Lanes in one statement; SQLite allows 500 parts.
LANES = 100


def heads_of(queue: str, caps: Mapping[str, int]) -> list[Head]:
    """Return the first works of the lanes of a queue, of each type as many as its cap, without locks."""
    lane = lane_columns()
    columns = f"{lane.rank}, {lane.sort_key}, {lane.run_at}, id, {lane.type}"
    head = f"SELECT * FROM (SELECT {columns} {lane.first}) AS head"
    heads: list[Head] = []
    for some in chunked(list(caps.items()), LANES):
        params = [param for lane_ in some for param in (queue, *lane_)]
        heads += map(Head._make, fetch(" UNION ALL ".join([head] * len(some)), params))
    return sorted(heads)


def shares_of(heads: Iterable[Head], limit: int) -> Mapping[str, int]:
    """Return how many works to take of each lane so that those of the queue come by priority, then age."""
    by_age = sorted(heads, key=lambda head: (head.rank, head.run_at, head.id))
    return Counter(head.type for head in by_age[:limit])


def lane_columns() -> LaneColumns:
    """Return how this database names the columns of the lanes' index."""
    return STAND_INS if vendor() == "mysql" else PARTIAL
