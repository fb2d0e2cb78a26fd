"""The order of claims: lanes, each of one queue and type; the turns of fairness labels inside a lane."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache, lru_cache
from itertools import chain, count
from typing import Any, NamedTuple

from django.db.models import Count

from django_ayework.define.types import registry
from django_ayework.models import BulkAction, Schedule, Waiter, Work, WorkControl, WorkerProcess
from django_ayework.rules.controls import EVERYTHING, FairnessKey, Scope, first_turn, turn_text
from django_ayework.store.database import chunked, connection, dialect, fetch, rows, stored_moment
from django_ayework.store.dialects import Dialect
from django_ayework.store.rows import WorkRow

WORK = Work._meta.db_table

#: The order within a lane: by priority, then by unit or turn where the type has one, then by age.
IN_LANE = "priority DESC, sort_key, run_at, id"
ORDER_IN_LANE = ("-priority", "sort_key", "run_at", "id")
#: The first works of a lane, for a SELECT; the parameters are its queue, its type, and how many.
FIRST_OF_LANE = (
    f"FROM {WORK} WHERE status = 'pending' AND queue = %s AND type = %s ORDER BY {IN_LANE} LIMIT %s"
)

#: Queues, or lanes, that one statement names; SQLite allows 500 parts.
LANES = 100
#: Queues that one statement finds.
QUEUES = 500


class Lane(NamedTuple):
    """The pending works of a type in a queue."""

    queue: str
    type: str


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
    if dialect().recurses_by_index:
        return list(map(Lane._make, fetch(LANES_BEHIND, (queue, number))))
    found, _ = lanes_by_entries(queue, lambda lanes: len(queues_of(lanes)) > number)
    queues = set(queues_of(found)[:number])  # the one behind them may have more lanes
    return [lane for lane in found if lane.queue in queues]


def lanes_of(queues: Sequence[str]) -> list[Lane]:
    """Return the lanes of these queues that have pending works, in order; reads no others."""
    find = lanes_by_recursion if dialect().recurses_by_index else lanes_by_rounds
    return [lane for some in chunked(sorted(set(queues)), LANES) for lane in find(some)]


#: From each queue, and from each type of a queue, the statement goes on to the next one in the index. It
#: reads one entry for each, however many works a lane has.
NEXT_TYPE = f"SELECT MIN(type) FROM {WORK} WHERE status = 'pending' AND queue"
LANES_OF_EACH = f"""
lane(queue, type) AS (
    SELECT each.queue, ({NEXT_TYPE} = each.queue) FROM each
    UNION ALL
    SELECT lane.queue, ({NEXT_TYPE} = lane.queue AND type > lane.type) FROM lane WHERE lane.type IS NOT NULL
)
SELECT queue, type FROM lane WHERE type IS NOT NULL ORDER BY queue, type
"""
NEXT_QUEUE = f"SELECT MIN(queue) FROM {WORK} WHERE status = 'pending' AND queue"
LANES_BEHIND = f"""
WITH RECURSIVE each(queue, number) AS (
    SELECT ({NEXT_QUEUE} > %s), 1
    UNION ALL
    SELECT ({NEXT_QUEUE} > each.queue), each.number + 1 FROM each
    WHERE each.queue IS NOT NULL AND each.number < %s
), {LANES_OF_EACH}
"""


def lanes_by_recursion(queues: Sequence[str]) -> list[Lane]:
    """Return the lanes of these queues by one statement."""
    each = " UNION ALL ".join(["SELECT CAST(%s AS TEXT)"] * len(queues))
    return list(map(Lane._make, fetch(f"WITH RECURSIVE each(queue) AS ({each}), {LANES_OF_EACH}", queues)))


#: MySQL and MariaDB use no index for a bound that another row gives. So each statement goes on from what the
#: one before has found: by so many entries, or by a type for each queue. The planner may miss that an index
#: of several that begin with the status has the order of the first statement.
ENTRIES = 200
NEXT_ENTRIES = f"""
SELECT queue, type FROM {WORK} FORCE INDEX (ayework_lane)
WHERE status = 'pending' AND (queue > %s OR queue = %s AND type > %s)
ORDER BY queue, type LIMIT {ENTRIES}
"""
FIRST_TYPE = f"SELECT %s, MIN(type) FROM {WORK} WHERE status = 'pending' AND queue = %s AND type > %s"


def lanes_by_entries(
    queue: str, are_enough: Callable[[list[Lane]], bool], most_statements: int = sys.maxsize
) -> tuple[list[Lane], bool]:
    """Return the lanes behind a queue: many small ones by one statement, large ones by one each.

    Return, too, whether the search was given up before it had found all or enough of them.
    """
    lanes: list[Lane] = []
    last: tuple[str, str | None] = (queue, None)
    for _ in range(most_statements):
        entries = fetch(NEXT_ENTRIES, (last[0], *last))
        lanes += dict.fromkeys(map(Lane._make, entries))
        if len(entries) < ENTRIES or are_enough(lanes):
            return lanes, False
        last = lanes[-1]
    return lanes, True


def queues_of(lanes: Iterable[Lane]) -> list[str]:
    """Return the queues of lanes, each once, in their order."""
    return list(dict.fromkeys(lane.queue for lane in lanes))


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


class Head(NamedTuple):
    """A work at the head of its lane; those of one lane sort as tuples."""

    rank: int  # minus the priority
    sort_key: str
    run_at: Any  # as the database gives it
    id: str
    type: str


HEAD = f"SELECT -priority, sort_key, run_at, id, type {FIRST_OF_LANE}"


def fetch_each(sql: str, params: Iterable[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Run a SELECT with each of these parameters, ``LANES`` of them in one statement; return all rows."""
    found: list[tuple[Any, ...]] = []
    for some in chunked(list(params), LANES):
        each = (f"SELECT * FROM ({sql}) AS part{number}" for number in range(len(some)))
        found += fetch(" UNION ALL ".join(each), list(chain.from_iterable(some)))
    return found


def heads_of(queue: str, caps: Mapping[str, int]) -> list[Head]:
    """Return the first works of the lanes of a queue, of each type as many as its cap, without locks."""
    return sorted(map(Head._make, fetch_each(HEAD, [(queue, *lane) for lane in caps.items()])))


def allocate(heads: Iterable[Head], limit: int) -> Mapping[str, int]:
    """Return how many works to take of each lane so that those of the queue come by priority, then age."""
    return Counter(head.type for head in by_age(heads)[:limit])


def by_age(heads: Iterable[Head]) -> list[Head]:
    """Return the heads of several lanes by priority, then age."""
    return sorted(heads, key=lambda head: (head.rank, head.run_at, head.id))


def is_claimed_alone(type: str) -> bool:
    """Tell whether works of a type are claimed apart from those of other types."""
    return registry.order_of(type) == "unit" or registry.batch(type) is not None


def works_ahead(row: WorkRow, types: Iterable[str], most: int) -> int:
    """Count the pending works that a claim takes before this one; ``most + 1`` stands for more than ``most``.

    ``types`` are those that are claimed together with its own. The next work of a lane is taken in the place
    of the next one by age, see ``allocate()``. At most that many entries of each lane are read, however long
    the queue is. A work that was taken meanwhile has none ahead.
    """
    heads = heads_of(row.queue, dict.fromkeys(types, most + 1))
    lane = [head.id for head in heads if head.type == row.type]
    if row.id not in lane:
        return most + 1 if len(lane) > most else 0
    places = [place for place, head in enumerate(by_age(heads)) if head.type == row.type]
    return min(places[lane.index(row.id)], most + 1)


# The one query that an idle worker repeats.


class Poll(NamedTuple):
    """The result of a poll: the first queue with pending works, the next start, and chores."""

    first_queue: str | None
    next_start: datetime | None
    lapsed: bool
    overdue: bool
    recheck: bool
    schedules: bool
    controls: tuple[int, ...]  # moves whenever the controls change
    command: str  # what the worker was told; empty for nothing
    bulk: datetime | None  # when the next page of a bulk action is due


def poll(now: datetime, scope: Scope = EVERYTHING, worker: str = "") -> Poll:
    """Poll in one statement. ``lapsed`` is about works of the scope."""
    moment = stored_moment(now)
    params = (moment, *scope.queues, *scope.types, *scope.exclude_types, moment, worker)
    found = fetch(poll_statement(scope), params)[0]
    first_queue, next_start, *chores, version, last, number, command, bulk = found
    lapsed, overdue, recheck, schedules = map(bool, chores)
    controls = (int(version or 0), int(last or 0), number)
    start = as_moment(next_start)
    bulk_at = as_moment(bulk)
    return Poll(first_queue, start, lapsed, overdue, recheck, schedules, controls, command or "", bulk_at)


@lru_cache(maxsize=16)
def poll_statement(scope: Scope) -> str:
    """Return the statement for a scope, whose names are its parameters.

    Each part reads at most one entry of an index, however large the tables are. Only entries of lapsed leases
    outside of the scope are passed over. Controls are a few rows. While their number and the last id are the
    same, none was made or deleted, and each change raises the sum.
    """
    return f"""
SELECT
    (SELECT MIN(queue) FROM {WORK} WHERE status = 'pending'),
    (SELECT MIN(run_at) FROM {WORK} WHERE status = 'scheduled'),
    EXISTS(SELECT 1 FROM {WORK} WHERE status = 'running' AND leased_until < %s{within(scope)}),
    EXISTS(SELECT 1 FROM {WORK} WHERE status = 'blocked' AND deadline < %s),
    EXISTS(SELECT 1 FROM {Waiter._meta.db_table} WHERE recheck),
    EXISTS(SELECT 1 FROM {Schedule._meta.db_table} WHERE due_at IS NOT NULL),
    (SELECT SUM(version) FROM {WorkControl._meta.db_table}),
    (SELECT MAX(id) FROM {WorkControl._meta.db_table}),
    (SELECT COUNT(*) FROM {WorkControl._meta.db_table}),
    (SELECT command FROM {WorkerProcess._meta.db_table} WHERE id = %s),
    (SELECT MIN(next_at) FROM {BulkAction._meta.db_table} WHERE next_at IS NOT NULL)
"""


def within(scope: Scope) -> str:
    """Return the rest of the condition that a work is of this scope; its names are the parameters."""
    conditions = (("queue IN", scope.queues), ("type IN", scope.types), ("type NOT IN", scope.exclude_types))
    return "".join(f" AND {is_} ({', '.join(['%s'] * len(names))})" for is_, names in conditions if names)


def as_moment(value: datetime | str | None) -> datetime | None:
    """Return a raw column as an aware datetime."""
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    if moment is None or moment.tzinfo is not None:
        return moment
    return moment.replace(tzinfo=connection().timezone)


# Counts.


def pending_by_queue() -> dict[str, int]:
    """Count the pending works by queue."""
    pending = rows(Work).filter(status="pending").order_by("queue")
    return dict(pending.values_list("queue").annotate(Count("id")))


# Turns of fairness labels.

LANE = "queue = %s AND type = %s AND priority = %s"
LAST_OF_LABEL = (
    f"SELECT sort_key FROM {WORK} {{by_turn}} WHERE status = 'pending' AND NOT (fairness = '') "
    f"AND fairness = %s AND {LANE} ORDER BY sort_key DESC LIMIT 1"
)
FIRST_OF_TURNS = (
    f"SELECT sort_key FROM {WORK} WHERE status = 'pending' AND {LANE} AND sort_key > '' "
    "ORDER BY sort_key LIMIT 1"
)


@cache
def next_turn(dialect: Dialect) -> str:
    """Return the next turn of a fairness key as an expression; its parameters are :func:`params_of`.

    Any other sort key than a turn is a unit, of a work whose type went by unit. Keys are parameters: MySQL
    and MariaDB would scan the lane for a key that another row gives.
    """
    last = dialect.turn_number.format(key=LAST_OF_LABEL.format(by_turn=dialect.by_turn))
    lowest = dialect.turn_number.format(key=FIRST_OF_TURNS)
    return dialect.turn_text.format(turn=f"COALESCE({last} + 1, {lowest}, %s)")


def params_of(key: FairnessKey, first: int) -> tuple[object, ...]:
    """Return the parameters of :func:`next_turn`; ``first`` is the turn in a lane without any."""
    lane = (key.queue, key.type, key.priority)
    return (key.fairness, *lane, *lane, first)


def turns_of(keys: Mapping[str, FairnessKey], now: datetime) -> dict[str, str]:
    """Return sort keys, by id, for works that are to wait with these fairness keys, in this order."""
    turns = next_turns([*dict.fromkeys(keys.values())], first_turn(now))
    counts = defaultdict[FairnessKey, Iterator[int]](count)
    return {id: turn_text(turns[key] + next(counts[key])) for id, key in keys.items()}


def next_turns(keys: Sequence[FairnessKey], first: int) -> dict[FairnessKey, int]:
    """Read the next turn for each of some fairness keys; ``first`` is that of a lane without any."""
    found: dict[FairnessKey, int] = {}
    turn = next_turn(dialect())
    for some in chunked(keys, LANES):
        params = [param for key in some for param in params_of(key, first)]
        sql = " UNION ALL ".join(f"SELECT {number}, {turn}" for number in range(len(some)))
        found.update((some[number], int(text)) for number, text in fetch(sql, params))
    return found
