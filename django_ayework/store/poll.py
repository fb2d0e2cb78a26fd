"""The one query an idle worker repeats."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from django_ayework.models import Schedule, Waiter, Work, WorkControl
from django_ayework.rules.controls import EVERYTHING, Scope
from django_ayework.store.database import connection, fetch, stored_moment
from django_ayework.store.generated_columns import OF_PENDING

WORK = Work._meta.db_table
IN_NO_LANE = " AND ".join(f"{name} IS NULL" for name in OF_PENDING)


@lru_cache(maxsize=16)
def statement(scope: Scope, has_stand_ins: bool) -> str:
    """Return the statement of a scope, whose names are its parameters; ``store.stand_ins`` has stand-ins.

    Each part reads at most one entry of an index, however large the tables are. Only entries of lapsed leases
    outside of the scope are passed over.
    """
    if has_stand_ins:
        return looking(
            f"MIN(pending_in) FROM {WORK} WHERE standing = 'pending'",
            f"MIN(moment) FROM {WORK} WHERE standing = 'scheduled' AND {IN_NO_LANE}",
            f"standing = 'running' AND {IN_NO_LANE} AND moment < %s{within(scope)}",
            f"standing = 'blocked' AND {IN_NO_LANE} AND moment < %s",
        )
    return looking(
        f"MIN(queue) FROM {WORK} WHERE status = 'pending'",
        f"MIN(run_at) FROM {WORK} WHERE status = 'scheduled'",
        f"status = 'running' AND leased_until < %s{within(scope)}",
        "status = 'blocked' AND deadline < %s",
    )


def looking(pending: str, scheduled: str, lapsed: str, overdue: str) -> str:
    """Return the statement of these parts."""
    return f"""
SELECT
    (SELECT {pending}),
    (SELECT {scheduled}),
    EXISTS(SELECT 1 FROM {WORK} WHERE {lapsed}),
    EXISTS(SELECT 1 FROM {WORK} WHERE {overdue}),
    EXISTS(SELECT 1 FROM {Waiter._meta.db_table} WHERE recheck),
    EXISTS(SELECT 1 FROM {Schedule._meta.db_table} WHERE due_at IS NOT NULL),
    (SELECT SUM(version) FROM {WorkControl._meta.db_table}),
    (SELECT MAX(id) FROM {WorkControl._meta.db_table})
"""


def within(scope: Scope) -> str:
    """Return the rest of the condition that a work is of this scope; its names are the parameters."""
    conditions = (("queue IN", scope.queues), ("type IN", scope.types), ("type NOT IN", scope.exclude_types))
    return "".join(f" AND {is_} ({', '.join(['%s'] * len(names))})" for is_, names in conditions if names)


class Look(NamedTuple):
    """What there is to do: the first queue with pending works, the next start, and chores."""

    first_queue: str | None
    next_start: datetime | None
    lapsed: bool
    overdue: bool
    recheck: bool
    schedules: bool
    controls: tuple[int, int]  # moves whenever the controls change


def look(now: datetime, scope: Scope = EVERYTHING) -> Look:
    """Ask, in one statement. ``lapsed`` is about works of the scope."""
    moment = stored_moment(now)
    params = (moment, *scope.queues, *scope.types, *scope.exclude_types, moment)
    answer = fetch(statement(scope, connection().vendor == "mysql"), params)
    first_queue, next_start, *chores, version, last = answer[0]
    lapsed, overdue, recheck, schedules = map(bool, chores)
    controls = (int(version or 0), int(last or 0))
    return Look(first_queue, as_moment(next_start), lapsed, overdue, recheck, schedules, controls)


def as_moment(value: datetime | str | None) -> datetime | None:
    """Return a raw column as an aware datetime."""
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    if moment is None or moment.tzinfo is not None:
        return moment
    return moment.replace(tzinfo=connection().timezone)
