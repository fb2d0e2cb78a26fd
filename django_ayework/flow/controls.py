"""Controls at run time: pausing, limiting, and what governs each type now."""

from __future__ import annotations

import logging
from typing import Any

from django_ayework.define.options import check_name, check_priority
from django_ayework.define.registry import registry
from django_ayework.define.type_options import check_limit, check_weight
from django_ayework.define.work_type import WorkSettings
from django_ayework.flow.closing import close
from django_ayework.flow.ledger import Ledger
from django_ayework.flow.readiness import hints_on_queues
from django_ayework.flow.twins import twinned
from django_ayework.models import WorkControl
from django_ayework.rules.controls import UNCONTROLLED, Controls, TypeControl
from django_ayework.store.clock import clock
from django_ayework.store.controls import Scope, all_controls, change_control
from django_ayework.store.database import atomic

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
        ledger = Ledger(clock.now())
        change_control(scope, name, changes, ledger.now)
        ledger.effects.wakes = True
        close(ledger)


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
