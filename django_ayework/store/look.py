"""One cheap look at whether there is anything to do: all that an idle worker asks the database."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from django_ayework.models import Waiter, Work, WorkControl
from django_ayework.store.database import connection, fetch, stored_moment

#: Each part reads at most one entry of an index, whatever the size of the tables.
LOOK = f"""
SELECT
    (SELECT MIN(queue) FROM {Work._meta.db_table} WHERE status = 'pending'),
    (SELECT MIN(run_at) FROM {Work._meta.db_table} WHERE status = 'scheduled'),
    EXISTS(SELECT 1 FROM {Work._meta.db_table} WHERE status = 'running' AND leased_until < %s),
    EXISTS(SELECT 1 FROM {Work._meta.db_table} WHERE status = 'blocked' AND deadline < %s),
    EXISTS(SELECT 1 FROM {Waiter._meta.db_table} WHERE recheck),
    (SELECT SUM(version) FROM {WorkControl._meta.db_table}),
    (SELECT MAX(id) FROM {WorkControl._meta.db_table})
"""
#: The same where columns have stand-ins (``store.stand_ins``).
LOOK_AT_STAND_INS = f"""
SELECT
    (SELECT MIN(queue) FROM {Work._meta.db_table} WHERE status = 'pending'),
    (SELECT MIN(due_at) FROM {Work._meta.db_table}),
    EXISTS(SELECT 1 FROM {Work._meta.db_table} WHERE leased_until < %s),
    EXISTS(SELECT 1 FROM {Work._meta.db_table} WHERE overdue_at < %s),
    EXISTS(SELECT 1 FROM {Waiter._meta.db_table} WHERE recheck),
    (SELECT SUM(version) FROM {WorkControl._meta.db_table}),
    (SELECT MAX(id) FROM {WorkControl._meta.db_table})
"""


class Look(NamedTuple):
    """What there is to do: the first queue with pending works, the next start, and chores."""

    first_queue: str | None
    next_start: datetime | None
    lapsed: bool
    overdue: bool
    recheck: bool
    controls: tuple[int, int]  # moves whenever the controls change


def look(now: datetime) -> Look:
    """Ask, in one statement."""
    moment = stored_moment(now)
    sql = LOOK_AT_STAND_INS if connection().vendor == "mysql" else LOOK
    first_queue, next_start, lapsed, overdue, recheck, version, last = fetch(sql, (moment, moment))[0]
    controls = (int(version or 0), int(last or 0))
    return Look(first_queue, as_moment(next_start), bool(lapsed), bool(overdue), bool(recheck), controls)


def as_moment(value: datetime | str | None) -> datetime | None:
    """Return a raw column as an aware datetime."""
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    if moment is None or moment.tzinfo is not None:
        return moment
    return moment.replace(tzinfo=connection().timezone)
