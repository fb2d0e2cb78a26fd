"""Controls at run time: pausing, limiting, and continuous types."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any

from django_ayework.define.options import WorkSettings, check_limit, check_name, check_priority, check_weight
from django_ayework.define.registry import registry
from django_ayework.errors import AyeworkError
from django_ayework.flow.enqueue import enqueue_one
from django_ayework.flow.events import report
from django_ayework.flow.readiness import hints_on_queues
from django_ayework.flow.recheck import flush
from django_ayework.flow.requests import twinned
from django_ayework.flow.unit_of_work import UnitOfWork
from django_ayework.models import WorkControl
from django_ayework.rules.controls import UNCONTROLLED, Controls, TypeControl
from django_ayework.rules.durations import later
from django_ayework.store.clock import clock
from django_ayework.store.controls import (
    Scope,
    all_controls,
    change_control,
    due_types,
    hold_type_controls,
    is_due_or_running,
    set_next_at,
)
from django_ayework.store.database import atomic, in_own_transaction

# --- controls ---
# Controls at run time: pausing, limiting, and what governs each type now.

logger = logging.getLogger("django_ayework")


@twinned
def pause(*, type: str | None = None, queue: str | None = None) -> None:
    """Stop claiming works of a type or of a queue, in the whole fleet; what runs goes on.

    Works can still be queued. Every worker heeds it within a poll. For a queue that no type of
    work uses a warning is logged, if another has nearly that name.

    Raises UnknownWorkType, and TypeError unless exactly one of the two is given.
    """
    set_paused(type, queue, True)


@twinned
def resume(*, type: str | None = None, queue: str | None = None) -> None:
    """Claim works of a paused type or queue again; see pause()."""
    set_paused(type, queue, False)


def set_paused(type: str | None, queue: str | None, paused: bool) -> None:
    """Write whether a type or a queue is paused."""
    if (type is None) == (queue is None):
        raise TypeError(f"expected either type= or queue=, got: type={type!r}, queue={queue!r}.")
    if type is not None:
        write("type", registry.get(type).name, paused=paused)
    else:
        name = check_name(queue, "queue")
        for hint in hints_on_queues([name]):
            logger.warning("%s", hint)
        write("queue", name, paused=paused)


@twinned
def limit(
    type: str,
    *,
    max_running: int | None = None,
    weight: int | None = None,
    priority: int | None = None,
) -> None:
    """Change how a type is served, in the whole fleet; what is not given stays.

    ``max_running`` is how many of its works may run at a time, 0 for any number. Types of a larger
    ``priority`` are served before all others of their queue; among equals the shares follow the ``weight``.

    Raises UnknownWorkType, and InvalidOption for a value that cannot be used.

    Example::

        limit("shop.charge", max_running=2)
    """
    given: dict[str, Any] = {}
    if max_running is not None:
        given["max_running"] = check_limit(max_running, "max_running")
    if weight is not None:
        given["weight"] = check_weight(weight, "weight")
    if priority is not None:
        given["priority"] = check_priority(priority, "priority")
    if not given:
        raise TypeError("expected at least one of max_running=, weight= and priority=.")
    write("type", registry.get(type).name, **given)


def write(scope: Scope, name: str, **changes: Any) -> None:
    """Write a control in the caller's transaction; workers of this process look at once after it."""
    with atomic():
        unit_of_work = UnitOfWork(clock.now())
        change_control(scope, name, changes, unit_of_work.now)
        unit_of_work.effects.wakes = True
        flush(unit_of_work)


def current_controls() -> Controls:
    """Read what governs each type and queue now."""
    stored = all_controls()
    rows = {row.name: row for row in stored if row.scope == "type"}
    declared = {work_type.name: work_type.settings for work_type in registry}
    types = {name: control_of(declared.get(name), rows.get(name)) for name in {*rows, *declared}}
    return Controls(
        {name: control for name, control in types.items() if control != UNCONTROLLED},
        frozenset(row.name for row in stored if row.scope == "queue" and row.paused),
    )


def control_of(declared: WorkSettings | None, row: WorkControl | None) -> TypeControl:
    """Return what governs a type: what operators have decided, else what its code declares."""
    declared = declared or WorkSettings()
    if row is None:
        return TypeControl(
            weight=declared.weight, max_running=declared.max_running, interval=declared.interval
        )
    return TypeControl(
        paused=row.paused,
        priority=row.priority or 0,
        weight=row.weight or declared.weight,
        max_running=declared.max_running if row.max_running is None else row.max_running,
        max_claimed=row.max_claimed or 0,
        interval=interval_of(declared, row),
    )


def interval_of(declared: WorkSettings, row: WorkControl) -> float | None:
    """Return the interval of a continuous type; one that is not declared so cannot be made so."""
    if declared.interval is None or row.continuous is False:
        return None
    return declared.interval if row.interval is None else row.interval


# --- continuous ---
# Continuous types: whenever none of their works is due or running, the engine queues one by itself.


def queue_continuous(intervals: Mapping[str, float]) -> int:
    """Queue a work of each of these continuous types whose time has come; return how many.

    ``intervals`` are seconds, by type. One that cannot be queued is reported and keeps no other waiting.
    """
    queued = 0
    for type in due_types(intervals, clock.now()) if intervals else ():
        try:
            queued += in_own_transaction(partial(queue_next, type, intervals[type]))
        except (AyeworkError, TypeError, ValueError) as error:
            report(error, "queue", f"no work of the continuous type {type!r} could be queued")
    return queued


def queue_next(type: str, interval: float) -> bool:
    """Queue one work of a type, unless another process has, or one is due or running, or the row is locked.

    The type's row is locked first, and what others have queued is looked for in a later statement: so every
    occasion brings one work, however many workers there are.
    """
    now = clock.now()
    row = hold_type_controls([type], now).get(type)
    if row is None or (row.next_at is not None and row.next_at > now) or is_due_or_running(type):
        return False
    enqueue_one(registry.get(type).build({}), {"unit": unit_at(now)})
    set_next_at(type, later(now, interval))
    return True


def unit_at(now: datetime) -> str:
    """Return the unit of a continuous work: the time, in Unix seconds with three decimals.

    >>> from datetime import UTC
    >>> unit_at(datetime(2026, 1, 1, microsecond=5000, tzinfo=UTC))
    '1767225600.005'
    """
    return f"{int(now.timestamp())}.{now.microsecond // 1000:03d}"
