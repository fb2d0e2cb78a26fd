"""How many works wait, run or died, and how long they ran: the figures of the overview.

Each function reads a bounded number of entries of an index, however many works there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django_ayework.models import Schedule
from django_ayework.rules.formatting import PARKED
from django_ayework.rules.states import Status
from django_ayework.store.database import connection, dialect, fetch, rows, stored_moment
from django_ayework.store.lanes import (
    FIRST_OF_LANE,
    WORK,
    Lane,
    as_moment,
    fetch_each,
    lanes_behind,
    lanes_by_entries,
)


class Depth(NamedTuple):
    """How many works of a queue and a type stand at a status, and from when on the oldest is due."""

    queue: str
    type: str
    works: int
    oldest: datetime | None


#: Statements that look for lanes where each finds the end of one large lane.
MOST_STATEMENTS = 60


def first_lanes(most: int) -> tuple[list[Lane], bool]:
    """Return the first lanes with pending works, at most so many, and whether there may be others."""
    if dialect().recurses_by_index:
        found, is_cut = lanes_behind("", most + 1), False
    else:
        found, is_cut = lanes_by_entries("", lambda lanes: len(lanes) > most, MOST_STATEMENTS)
    return found[:most], is_cut or len(found) > most


#: The first works of a lane are counted; the parameters are the lane twice, and the bound.
DEPTH = f"""
SELECT %s AS queue, %s AS type, COUNT(*) AS works, MIN(run_at) AS oldest FROM (
    SELECT run_at {FIRST_OF_LANE}
) AS head
"""


def pending_depths(lanes: Sequence[Lane], limit: int) -> list[Depth]:
    """Count the pending works of each lane, up to a bound; the oldest is one of those that are counted."""
    return depths(fetch_each(DEPTH, [(*lane, *lane, limit) for lane in lanes]))


#: In which order the works of a status are read through an index of their own.
IN_ORDER = {
    Status.SCHEDULED: "ORDER BY run_at",
    Status.RUNNING: "ORDER BY leased_until",
    Status.BLOCKED: "ORDER BY deadline, id",
}


def depths_at(status: Status, limit: int) -> list[Depth]:
    """Count the works of a status by queue and type, up to a bound for all together.

    Where indexes cover all statuses, the one of lanes has the queue and the type of each, too.
    """
    order = IN_ORDER[status] if has_own_indexes() else ""
    return depths_among(f"{forced('ayework_lane')} WHERE status = '{status.value}' {order}", (limit,))


def overdue_depths(now: datetime, limit: int) -> list[Depth]:
    """Count the scheduled works that are due and that no worker has noticed, by queue and type."""
    which = f"{forced('ayework_due')} WHERE status = 'scheduled' AND run_at <= %s ORDER BY run_at"
    return depths_among(which, (stored_moment(now), limit))


class Parked(NamedTuple):
    """How many works of a type are parked, and the error of the one that has been for the longest time."""

    type: str
    works: int
    error: str


def parked_types(before: datetime, limit: int) -> list[Parked]:
    """Count the parked works by type, among so many that are due first, all before a moment."""
    sql = (
        f"SELECT type, COUNT(*), MIN(error) FROM (SELECT type, error FROM {WORK} {forced('ayework_due')} "
        "WHERE status = 'scheduled' AND run_at <= %s ORDER BY run_at LIMIT %s) AS due "
        "WHERE error LIKE %s GROUP BY type ORDER BY 2 DESC, type"
    )
    return [Parked._make(found) for found in fetch(sql, (stored_moment(before), limit, f"{PARKED}%"))]


def dead_depths(limit: int) -> list[Depth]:
    """Count the dead works by queue and type, those that died last up to a bound for all together."""
    return depths_among(
        f"{forced('ayework_dead')} WHERE status = 'dead' ORDER BY ended_at DESC, id DESC", (limit,)
    )


def depths_among(which: str, params: Sequence[object]) -> list[Depth]:
    """Count some works by queue and type; the last parameter is how many works at most."""
    sql = (
        f"SELECT queue, type, COUNT(*), MIN(run_at) FROM (SELECT queue, type, run_at FROM {WORK} {which} "
        "LIMIT %s) AS counted GROUP BY queue, type"
    )
    return depths(fetch(sql, params))


def depths(found: Iterable[tuple[Any, ...]]) -> list[Depth]:
    """Return the rows of a statement as counts."""
    return [Depth(queue, type, works, as_moment(oldest)) for queue, type, works, oldest in found]


def forced(index: str) -> str:
    """Return what makes a statement use an index where all of them cover all statuses.

    The planner there may choose another one that begins with the status, and sort.
    """
    return "" if has_own_indexes() else f"FORCE INDEX ({index})"


def has_own_indexes() -> bool:
    """Tell whether works of one status have indexes of their own."""
    return connection().features.supports_partial_indexes


#: The last works of a type that ended so are counted; the parameters are the status, the type, and how many.
ENDED = (
    f"SELECT queue, type, COUNT(*) AS works, MIN(ended_at) AS oldest FROM (SELECT queue, type, ended_at "
    f"FROM {WORK} WHERE status = %s AND type = %s AND ended_at IS NOT NULL ORDER BY ended_at DESC LIMIT %s"
    ") AS latest GROUP BY queue, type"
)


def ended_depths(status: str, types: Sequence[str], limit: int) -> list[Depth]:
    """Count the works of a terminal status by type and queue, of each type up to a bound."""
    return depths(fetch_each(ENDED, [(status, type, limit) for type in types]))


def lapsed_by_queue(now: datetime, limit: int) -> dict[str, int]:
    """Count the running works whose lease has lapsed, by queue, up to a bound for all together."""
    sql = (
        f"SELECT queue, COUNT(*) FROM (SELECT queue FROM {WORK} WHERE status = 'running' "
        "AND leased_until < %s ORDER BY leased_until LIMIT %s) AS lapsed GROUP BY queue"
    )
    return dict(fetch(sql, (stored_moment(now), limit)))


def dead_letters(limit: int) -> int:
    """Count dead works, up to ``limit``."""
    sql = (
        f"SELECT COUNT(*) FROM (SELECT id FROM {WORK} {forced('ayework_dead')} WHERE status = 'dead' "
        "ORDER BY ended_at, id LIMIT %s) AS dead"
    )
    return int(fetch(sql, (limit,))[0][0])


class Recent(NamedTuple):
    """Works of a type since a moment: how many, how many of them lately, and when the first was."""

    works: int
    lately: int
    since: datetime | None


def died_since(moment: datetime, lately: datetime, limit: int) -> dict[str, Recent]:
    """Count the last works that died since a moment, by type, up to a bound for all together."""
    return latest(f"{forced('ayework_dead')} WHERE status = 'dead' AND", "ended_at", moment, lately, limit)


def queued_since(moment: datetime, limit: int) -> dict[str, Recent]:
    """Count the last works that were queued since a moment, by type, up to a bound for all together."""
    return latest("WHERE", "queued_at", moment, moment, limit)


def latest(which: str, column: str, since: datetime, lately: datetime, limit: int) -> dict[str, Recent]:
    """Count the latest of some works by type."""
    sql = (
        f"SELECT type, COUNT(*), SUM(CASE WHEN {column} >= %s THEN 1 ELSE 0 END), MIN({column}) FROM ("
        f"SELECT type, {column} FROM {WORK} {which} {column} >= %s ORDER BY {column} DESC, id DESC LIMIT %s"
        ") AS latest GROUP BY type"
    )
    found = fetch(sql, (stored_moment(lately), stored_moment(since), limit))
    return {type: Recent(works, int(late), as_moment(first)) for type, works, late, first in found}


#: The last successes of a type; the parameters are the type, and how many.
LAST_SUCCESSES = (
    f"SELECT type, started_at, ended_at FROM {WORK} WHERE status = 'success' AND type = %s "
    "AND ended_at IS NOT NULL ORDER BY ended_at DESC LIMIT %s"
)


def running_times(types: Sequence[str], number: int) -> dict[str, list[float]]:
    """Return for how many seconds the last successes of each type ran, at most so many of each, in order.

    Works that were completed by hand before they started are left out.
    """
    times: dict[str, list[float]] = {type: [] for type in types}
    for type, began, ended in fetch_each(LAST_SUCCESSES, [(type, number) for type in types]):
        started_at, ended_at = as_moment(began), as_moment(ended)
        if started_at is not None and ended_at is not None:
            times[type].append(max(0.0, (ended_at - started_at).total_seconds()))
    return {type: sorted(found) for type, found in times.items()}


# Schedules


def schedules_due(limit: int) -> list[Schedule]:
    """Return the schedules that are due next."""
    return list(rows(Schedule).filter(due_at__isnull=False).order_by("due_at")[:limit])


def schedules_failing(limit: int) -> list[Schedule]:
    """Return schedules whose last tries have failed."""
    return list(rows(Schedule).filter(failures__gt=0, enabled=True, paused=False).order_by("name")[:limit])
