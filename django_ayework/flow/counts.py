"""How many works there are by queue, type and status: for programs, and as gauges of the fleet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import islice

from django_ayework.define.handles import WorkCount
from django_ayework.flow.explain import live_workers
from django_ayework.flow.overview import COUNTED_IN_ALL, MOST_LANES, longest_wait, pending_counts, works_in
from django_ayework.rules.figures import MOST_COUNTED
from django_ayework.rules.states import TERMINAL, Status
from django_ayework.store import backlog, deletion
from django_ayework.store.backlog import Depth
from django_ayework.store.database import clock, sync_only
from django_ayework.store.lanes import Lane

#: Types whose ended works are counted.
MOST_TYPES = 200


@sync_only
def work_counts() -> list[WorkCount]:
    """Return how many works there are of each queue, type and status that has some, sorted.

    At most about 20,000 works of each status are counted, shared among its types, so the cost is bounded. A
    count that may be too small is ``capped``.

    Example::

        for each in work_counts():
            gauge.labels(each.queue, each.type, each.status).set(each.works)
    """
    return sorted([*counted_pending(), *counted_live(), *counted_ended()], key=lambda each: each.place)


def counted_pending() -> Iterator[WorkCount]:
    """Yield the counts of pending works, lane by lane."""
    lanes, _ = backlog.first_lanes(MOST_LANES)
    depths, bounds = pending_counts(lanes)
    for depth in depths:
        bound = bounds[depth.queue, depth.type]
        works, is_capped = min(depth.works, bound), depth.works > bound
        yield WorkCount(depth.queue, depth.type, Status.PENDING, works, is_capped)


def counted_live() -> Iterator[WorkCount]:
    """Yield the counts of the other works that have not ended; the bound is one for all of a status."""
    for status in backlog.IN_ORDER:
        depths = backlog.depths_at(status, COUNTED_IN_ALL)
        is_capped = works_in(depths) >= COUNTED_IN_ALL
        for depth in depths:
            yield WorkCount(depth.queue, depth.type, status, depth.works, is_capped)


def counted_ended() -> Iterator[WorkCount]:
    """Yield the counts of ended works; the types of a status share the bound."""
    for status in sorted(TERMINAL):
        types = [type for type, _ in islice(deletion.types_ended(status), MOST_TYPES)]
        bound = COUNTED_IN_ALL // max(1, len(types))
        depths = backlog.ended_depths(status, types, bound)
        for type in types:
            of_type = [depth for depth in depths if depth.type == type]
            is_capped = works_in(of_type) >= bound
            for depth in of_type:
                yield WorkCount(depth.queue, depth.type, status, depth.works, is_capped)


# Figures of the fleet


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetFigures:
    """Works by queue and type at one moment. No status is counted further than the overview counts it.

    ``by_status`` has scheduled, running, blocked and dead works, ``waiting`` those that are due. ``ages`` are
    the seconds for which the oldest due work of a lane has been due. ``workers`` are those that are alive.
    ``incomplete`` has the statuses whose works were perhaps not all counted. For pending works it concerns
    those that are due.
    """

    waiting: Sequence[Depth]
    ages: Mapping[Lane, float]
    by_status: Mapping[Status, Sequence[Depth]]
    workers: int
    incomplete: Set[Status] = frozenset()


@sync_only
def fleet_figures() -> FleetFigures:
    """Read the figures; what the statements read is bounded, whatever the tables hold."""
    now = clock.read()
    lanes, are_more = backlog.first_lanes(MOST_LANES)
    waiting, _ = pending_counts(lanes)
    by_status = {status: backlog.depths_at(status, MOST_COUNTED) for status in backlog.IN_ORDER}
    by_status[Status.DEAD] = backlog.dead_depths(MOST_COUNTED)
    overdue = backlog.overdue_depths(now, MOST_COUNTED)
    incomplete = {status for status, depths in by_status.items() if works_in(depths) >= MOST_COUNTED}
    if are_more or works_in(overdue) >= MOST_COUNTED:
        incomplete.add(Status.PENDING)
    ages: dict[Lane, float] = {}
    for depth in (*waiting, *overdue):
        lane = Lane(depth.queue, depth.type)
        ages[lane] = max(ages.get(lane, 0.0), longest_wait([depth], now))
    return FleetFigures(
        waiting=waiting,
        ages=ages,
        by_status=by_status,
        workers=len(live_workers(now)),
        incomplete=incomplete,
    )
