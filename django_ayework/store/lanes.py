"""Lanes: which queues and types have pending works, and how many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple

from django.db.models import Count, Min

from django_ayework.models import Work, WorkerProcess
from django_ayework.rules.states import LIVE, Status
from django_ayework.store.database import chunked, fetch, rows, vendor
from django_ayework.store.generated_columns import ended_as, on_timeline, with_status
from django_ayework.store.rows import WorkRow

# --- lanes ---
# Lanes: where claims are taken from. Pending works of one queue and one type stand in one lane, in order.

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


#: Queues, or lanes, that one statement names; SQLite allows 500 parts.
LANES = 100
#: Queues that one statement finds.
QUEUES = 500


def lanes_with_work() -> Iterator[Lane]:
    """Yield every lane with pending works, in order."""
    return chain.from_iterable(pages_of_lanes("", QUEUES))


def pages_of_lanes(queue: str, first: int) -> Iterator[list[Lane]]:
    """Yield the lanes of the queues behind this one: of the first few queues, then of many at a time."""
    number = first
    while lanes := lanes_behind(queue, number):
        yield lanes
        if len({lane.queue for lane in lanes}) < number:
            return
        queue, number = lanes[-1].queue, QUEUES


def lanes_behind(queue: str, number: int) -> list[Lane]:
    """Return the lanes of the next queues behind this one that have pending works, at most so many queues."""
    if vendor() == "mysql":
        return lanes_by_entries(queue, number)
    return list(map(Lane._make, fetch(LANES_BEHIND, (queue, number))))


def lanes_of(queues: Sequence[str]) -> list[Lane]:
    """Return the lanes of these queues that have pending works, in order; reads no others."""
    find = lanes_by_rounds if vendor() == "mysql" else lanes_by_recursion
    return [lane for some in chunked(sorted(set(queues)), LANES) for lane in find(some)]


#: From each queue, and from each type of a queue, the statement goes on to the next one in the index. It
#: reads one entry for each, however many works a lane has.
NEXT_TYPE = f"SELECT MIN(type) FROM {WORK} WHERE status = 'pending' AND queue"
LANES_HERE = f"""
lane(queue, type) AS (
    SELECT here.queue, ({NEXT_TYPE} = here.queue) FROM here
    UNION ALL
    SELECT lane.queue, ({NEXT_TYPE} = lane.queue AND type > lane.type) FROM lane WHERE lane.type IS NOT NULL
)
SELECT queue, type FROM lane WHERE type IS NOT NULL ORDER BY queue, type
"""
NEXT_QUEUE = f"SELECT MIN(queue) FROM {WORK} WHERE status = 'pending' AND queue"
LANES_BEHIND = f"""
WITH RECURSIVE here(queue, number) AS (
    SELECT ({NEXT_QUEUE} > %s), 1
    UNION ALL
    SELECT ({NEXT_QUEUE} > here.queue), here.number + 1 FROM here
    WHERE here.queue IS NOT NULL AND here.number < %s
), {LANES_HERE}
"""


def lanes_by_recursion(queues: Sequence[str]) -> list[Lane]:
    """Return the lanes of these queues by one statement."""
    here = " UNION ALL ".join(["SELECT CAST(%s AS TEXT)"] * len(queues))
    return list(map(Lane._make, fetch(f"WITH RECURSIVE here(queue) AS ({here}), {LANES_HERE}", queues)))


#: MySQL and MariaDB use no index for a bound that another row gives. So each statement goes on from what the
#: one before has found: by so many entries, or by a type for each queue.
ENTRIES = 200
NEXT_ENTRIES = f"""
SELECT pending_in, pending_type FROM {WORK}
WHERE standing = 'pending' AND (pending_in > %s OR pending_in = %s AND pending_type > %s)
ORDER BY pending_in, pending_type LIMIT {ENTRIES}
"""
FIRST_TYPE = (
    f"SELECT %s, MIN(pending_type) FROM {WORK} "
    "WHERE standing = 'pending' AND pending_in = %s AND pending_type > %s"
)


def lanes_by_entries(queue: str, number: int) -> list[Lane]:
    """Return the lanes of the next queues: many small ones by one statement, large ones by one each."""
    lanes: list[Lane] = []
    last: tuple[str, str | None] = (queue, None)
    while True:
        entries = fetch(NEXT_ENTRIES, (last[0], *last))
        lanes += dict.fromkeys(map(Lane._make, entries))
        queues = list(dict.fromkeys(lane.queue for lane in lanes))
        if len(queues) > number:  # and the last one may have more lanes
            return [lane for lane in lanes if lane.queue <= queues[number - 1]]
        if len(entries) < ENTRIES:
            return lanes
        last = lanes[-1]


def lanes_by_rounds(queues: Sequence[str]) -> list[Lane]:
    """Return the lanes of these queues: each statement finds the next type of each."""
    lanes: list[Lane] = []
    last = [Lane(queue, "") for queue in queues]
    while last:
        params = [param for lane in last for param in (lane.queue, *lane)]
        found = fetch(" UNION ALL ".join([FIRST_TYPE] * len(last)), params)
        last = [Lane(queue, type) for queue, type in found if type is not None]
        lanes += last
    return sorted(lanes)


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


def claim_groups_of(heads: Iterable[Head], limit: int) -> Mapping[str, int]:
    """Return how many works to take of each lane so that those of the queue come by priority, then age."""
    by_age = sorted(heads, key=lambda head: (head.rank, head.run_at, head.id))
    return Counter(head.type for head in by_age[:limit])


def lane_columns() -> LaneColumns:
    """Return how this database names the columns of the lanes' index."""
    return STAND_INS if vendor() == "mysql" else PARTIAL


# --- ahead ---
# How many works of a queue go before one of them.


def works_ahead(row: WorkRow, types: Iterable[str], most: int) -> int:
    """Count the pending works that a claim takes before this one; ``most + 1`` stands for more than ``most``.

    ``types`` are those that are claimed together with its own. They are the beginnings of the queue's lanes
    in the order of claiming, so at most that many entries of each are read, however long the queue is. A work
    that was taken meanwhile has none ahead.
    """
    by_unit = bool(row.sort_key)
    heads = heads_of(row.queue, dict.fromkeys(types, most + 1))
    ids = [head.id for head in heads if bool(head.sort_key) is by_unit][: most + 1]
    if row.id in ids:
        return ids.index(row.id)
    return most + 1 if len(ids) > most else 0


# --- counts ---
# Counting what is live. Live rows are few beside those retained, and have indexes of their own.


class Depth(NamedTuple):
    """How many works of a queue stand at a status, and from when on the oldest is due."""

    queue: str
    status: str
    works: int
    oldest: datetime | None


def live_depths(most_scheduled: int) -> list[Depth]:
    """Count live works by queue and status, one status at a time: each has an index of its own.

    Works of the far future may be many, so of those that are scheduled the first ones are counted.
    """
    statuses = sorted(str(status) for status in LIVE if status is not Status.SCHEDULED)
    depths = [depth for status in statuses for depth in depths_of(status)]
    return [*depths, *scheduled_depths(most_scheduled)]


def scheduled_depths(limit: int) -> list[Depth]:
    """Count the scheduled works by queue, up to ``limit`` of them: those that are due first."""
    scheduled = on_timeline(rows(Work), Status.SCHEDULED).order_by("moment")
    first = list(scheduled.values_list("queue", "run_at")[:limit])
    oldest = dict(reversed(first))
    return [
        Depth(queue, Status.SCHEDULED, works, oldest[queue])
        for queue, works in sorted(Counter(queue for queue, _ in first).items())
    ]


def depths_of(status: str) -> list[Depth]:
    """Count the works of one live status by queue."""
    works = with_status(rows(Work), status).values_list("queue", "status").order_by("queue")
    return [Depth._make(row) for row in works.annotate(Count("id"), Min("run_at"))]


def lapsed_by_queue(now: datetime) -> dict[str, int]:
    """Count the running works whose lease has lapsed, by queue."""
    lapsed = on_timeline(rows(Work), Status.RUNNING).filter(moment__lt=now)
    return dict(lapsed.values_list("queue").order_by("queue").annotate(Count("id")))


def dead_letters(limit: int) -> int:
    """Count dead works, up to ``limit``."""
    return len(ended_as(rows(Work), Status.DEAD).values_list("id")[:limit])


def processes_seen_since(moment: datetime) -> list[WorkerProcess]:
    """Return the workers that were alive after this moment and have not stopped."""
    return list(rows(WorkerProcess).filter(seen_at__gte=moment, stopped_at=None).order_by("started_at"))
