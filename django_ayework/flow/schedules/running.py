"""What a schedule runs, and what it is told of the next time: the project's code is called here."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

from django_ayework.define.handles import Handle
from django_ayework.define.ids import new_id
from django_ayework.define.registry import registry
from django_ayework.define.requests import WorkRequest
from django_ayework.define.schedules import DeclaredSchedule, schedules
from django_ayework.errors import ImproperWork
from django_ayework.flow.enqueue import enqueue_one
from django_ayework.flow.schedules.sync import midnight
from django_ayework.heartbeat import project_code
from django_ayework.models import Schedule
from django_ayework.rules.cron.moments import zone_of
from django_ayework.rules.durations import require_aware
from django_ayework.store.rows import find_row


class Queued(NamedTuple):
    """What a firing has queued; empty when the function queued by itself, or nothing."""

    work: str = ""
    group: str = ""


def is_known(row: Schedule) -> bool:
    """Tell whether this process has what the schedule runs."""
    if row.origin == "admin":
        return registry.find(row.function) is not None
    return schedules.find(row.name) is not None


def run(row: Schedule) -> Queued:
    """Queue, in the transaction at hand, what a schedule that is known here runs.

    Raises ImproperWork when the function returns something else than a work, and whatever it raises.
    """
    request = request_of(row)
    if request is None:
        return Queued()
    handle = request if isinstance(request, Handle) else enqueue_one(request, {})
    return Queued(handle.id, handle.group_id)


def request_of(row: Schedule) -> WorkRequest[Any, Any] | Handle[Any, Any] | None:
    """Return the request to queue, under an id that is new each time."""
    declared = schedules.find(row.name)
    if row.origin == "admin" or declared is None:
        return registry.get(row.function).build(json.loads(row.input or "{}"))
    if isinstance(declared.run, WorkRequest):
        return replace(declared.run, id=new_id())
    with project_code():
        given = declared.run()
    if isinstance(given, WorkRequest):
        return given if find_row(given.id) is None else replace(given, id=new_id())
    if given is None or isinstance(given, Handle):
        return given
    raise ImproperWork(
        f"expected {declared.function}, which the schedule {declared.name!r} runs, to return a work built by "
        f"calling its type, or None, got: {given!r}."
    )


def asked(declared: DeclaredSchedule, row: Schedule, now: datetime) -> datetime | None:
    """Ask a schedule's function for the next moment; None is the end.

    Raises TypeError for anything else than a date, a datetime or None, and ValueError for a naive datetime
    and for a moment that is not after the last occurrence, which would be fired again.
    """
    if declared.next is None:
        return None
    with project_code():
        given = declared.next(max(now, row.start_at or now).astimezone(zone_of(row.tz)))
    if given is None:
        return None
    if not isinstance(given, date):
        raise TypeError(
            f"expected next of the schedule {row.name!r} to return a datetime, a date or None, "
            f"got: {given!r}."
        )
    moment = require_aware(midnight(given, row.tz), f"next of the schedule {row.name!r}").astimezone(UTC)
    if row.last_at is not None and moment <= row.last_at:
        raise ValueError(
            f"expected next of the schedule {row.name!r} to return a moment after the last one "
            f"({row.last_at.isoformat()}), or None for the end, got: {given!r}."
        )
    return None if row.end_at is not None and moment > row.end_at else moment
