"""What the whole fleet has to do: works by status, queue and type, as gauges show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django_ayework.flow.explain import GONE_AFTER
from django_ayework.flow.overview import MOST_LANES, longest_wait, pending_counts
from django_ayework.rules.figures import MOST_COUNTED
from django_ayework.rules.states import Status
from django_ayework.store import backlog
from django_ayework.store.backlog import Depth
from django_ayework.store.clock import clock
from django_ayework.store.database import sync_only
from django_ayework.store.lanes import Lane, processes_seen_since


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetFigures:
    """Works by queue and type at one moment. No status is counted further than the overview counts it.

    ``by_status`` has scheduled, running, blocked and dead works, ``waiting`` those that are due. ``ages`` are
    the seconds for which the oldest due work of a lane has been due. ``workers`` are those that are alive.
    """

    waiting: Sequence[Depth]
    ages: Mapping[Lane, float]
    by_status: Mapping[Status, Sequence[Depth]]
    workers: int


@sync_only
def fleet_figures() -> FleetFigures:
    """Read the figures; what the statements read is bounded, whatever the tables hold."""
    clock.synchronise()
    now = clock.now()
    lanes, _ = backlog.first_lanes(MOST_LANES)
    waiting, _ = pending_counts(lanes)
    by_status = {status: backlog.depths_at(status, MOST_COUNTED) for status in backlog.IN_ORDER}
    by_status[Status.DEAD] = backlog.dead_depths(MOST_COUNTED)
    return FleetFigures(
        waiting=waiting,
        ages=ages_of([*waiting, *backlog.overdue_depths(now, MOST_COUNTED)], now),
        by_status=by_status,
        workers=len(processes_seen_since(now - GONE_AFTER)),
    )


def ages_of(due: Sequence[Depth], now: datetime) -> dict[Lane, float]:
    """Return the seconds for which the oldest due work of each lane has been due."""
    ages: dict[Lane, float] = {}
    for depth in due:
        lane = Lane(depth.queue, depth.type)
        ages[lane] = max(ages.get(lane, 0.0), longest_wait([depth], now))
    return ages
