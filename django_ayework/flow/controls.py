"""Controls of types and queues, and commands to single workers.

Types and queues are paused, types limited, continuous types kept going. A worker is told to be quiet, to
resume or to stop. The database carries all this; workers obey at their next poll.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Literal, TypeAlias, get_args

from django_ayework.define.options import WorkSettings, check_limit, check_priority, check_queue, check_weight
from django_ayework.define.types import AnyWorkType, WorkType, registry
from django_ayework.documentation import logged, type_error
from django_ayework.errors import AyeworkError, InvalidOption, WorkerNotFound
from django_ayework.flow.enqueue import enqueue_one
from django_ayework.flow.hooks import report
from django_ayework.flow.notify import wake_workers
from django_ayework.flow.startup_checks import hints_on_queues
from django_ayework.logs import logger
from django_ayework.models import WorkControl
from django_ayework.rules.controls import UNCONTROLLED, Controls, TypeControl
from django_ayework.rules.durations import later
from django_ayework.store.controls import (
    Scope,
    all_controls,
    change_control,
    due_types,
    hold_type_controls,
    is_due_or_running,
    set_next_at,
)
from django_ayework.store.database import (
    atomic,
    clock,
    on_commit,
    own_transaction,
    project_code_within,
    sync_only,
)
from django_ayework.store.processes import command_process

#: The control of a type about which operators have decided nothing.
NOTHING_DECIDED = WorkControl()
#: The checks of the values that limit() takes.
CHECKS: dict[str, Callable[[Any, str], int]] = {
    "max_running": check_limit,
    "weight": check_weight,
    "priority": check_priority,
}


@sync_only
def pause(*, type: AnyWorkType | str | None = None, queue: str | None = None) -> None:
    """Stop claiming works of a type or of a queue, in all workers; running works go on.

    Works can still be queued. Every worker applies the pause within a poll. A warning is logged for a queue
    that no type of work uses, if another queue has nearly that name.

    Raises UnknownWorkType, and TypeError unless exactly one of ``type`` and ``queue`` is given.

    Example::

        pause(type="shop.charge")
    """
    set_paused(type, queue, True)


@sync_only
def resume(*, type: AnyWorkType | str | None = None, queue: str | None = None) -> None:
    """Claim works of a paused type or queue again; see pause()."""
    set_paused(type, queue, False)


def set_paused(type: AnyWorkType | str | None, queue: str | None, paused: bool) -> None:
    if (type is None) == (queue is None):
        raise type_error(
            "act-arguments", f"expected either type= or queue=, got: type={type!r}, queue={queue!r}."
        )
    if type is not None:
        write("type", known_name(type), paused=paused)
    else:
        name = check_queue(queue, "queue")
        for hint in hints_on_queues([name]):
            logger.warning("%s %s", hint, logged("queue-name"))
        write("queue", name, paused=paused)


@sync_only
def limit(
    type: AnyWorkType | str,
    *,
    max_running: int | None = None,
    weight: int | None = None,
    priority: int | None = None,
) -> None:
    """Change the limit, the weight or the priority of a type in all workers; values that are not given stay.

    ``max_running`` is how many of its works may run at a time, 0 for any number. Types of a larger
    ``priority`` are served before all others of their queue; types of equal priority share by ``weight``.

    Raises UnknownWorkType, InvalidOption for a value that cannot be used, and TypeError without any value.

    Example::

        limit("shop.charge", max_running=2)
    """
    values = {"max_running": max_running, "weight": weight, "priority": priority}
    given = {name: CHECKS[name](value, name) for name, value in values.items() if value is not None}
    if not given:
        raise type_error("act-arguments", "expected at least one of max_running=, weight= and priority=.")
    write("type", known_name(type), **given)


def known_name(type: AnyWorkType | str) -> str:
    """Return the name of a type, which may be given by its name. Raises UnknownWorkType."""
    return registry.get(type.name if isinstance(type, WorkType) else type).name


def write(scope: Scope, name: str, **changes: Any) -> None:
    """Write a control in the caller's transaction; workers of this process poll at once after its commit."""
    with atomic():
        change_control(scope, name, changes, clock.now())
        on_commit(wake_workers)


def current_controls() -> Controls:
    """Read the controls of each type and queue; types without any are left out."""
    stored = all_controls()
    rows = {row.name: row for row in stored if row.scope == "type"}
    declared = {work_type.name: work_type.settings for work_type in registry}
    types = {name: control_of(declared.get(name), rows.get(name)) for name in {*rows, *declared}}
    return Controls(
        {name: control for name, control in types.items() if control != UNCONTROLLED},
        frozenset(row.name for row in stored if row.scope == "queue" and row.paused),
    )


def control_of(declared: WorkSettings | None, row: WorkControl | None) -> TypeControl:
    """Return the control of a type: each value is the operators', else the one that its code declares."""
    declared = declared or WorkSettings()
    row = row or NOTHING_DECIDED
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


def queue_continuous(intervals: Mapping[str, float]) -> None:
    """Queue a work of each of these continuous types whose time has come.

    A continuous type gets a work whenever none is pending or running. ``intervals`` are seconds, by type. A
    failure is reported and keeps no other type waiting.
    """
    for type in due_types(intervals, clock.now()) if intervals else ():
        what = f"no work of the continuous type {type!r} could be queued"
        try:
            queue_next(type, intervals[type])
        except NotBuilt as failed:
            report(failed.__cause__ or failed, "queue", what)
        except (AyeworkError, TypeError, ValueError) as error:
            report(error, "queue", what)


class NotBuilt(Exception):
    """Code of the project's raised while a work was built; its cause may look like an error of the queue."""


@own_transaction
def queue_next(type: str, interval: float) -> None:
    """Queue one work of a type, unless one is pending or running, or another process is at the type.

    The type's row is locked first, and the works of others are searched for in a later statement: so each
    occasion brings one work, however many workers there are.
    """
    now = clock.now()
    row = hold_type_controls([type], now).get(type)
    if row is None or (row.next_at is not None and row.next_at > now) or is_due_or_running(type):
        return
    try:
        with project_code_within():
            request = registry.get(type).build({})
    except BaseException as error:
        raise NotBuilt from error
    enqueue_one(request, {"unit": unit_at(now)})
    set_next_at(type, later(now, interval))


def unit_at(now: datetime) -> str:
    """Return the unit of a continuous work: the time, in Unix seconds with three decimals.

    >>> from datetime import UTC
    >>> unit_at(datetime(2026, 1, 1, microsecond=5000, tzinfo=UTC))
    '1767225600.005'
    """
    return f"{int(now.timestamp())}.{now.microsecond // 1000:03d}"


# Commands

Command: TypeAlias = Literal["quiet", "resume", "stop"]


@sync_only
def command_worker(id: str, command: Command) -> None:
    """Send one worker a command, in the caller's transaction; the worker follows it at its next poll.

    - ``"quiet"``: the worker claims no more works and releases prefetched works. Running works go on.
    - ``"resume"``: a quiet worker claims again.
    - ``"stop"``: the worker stops in order, as after SIGTERM. A supervisor does not replace it.

    The last command counts. ``id`` is the id of a ``WorkerProcess``.

    Raises WorkerNotFound for a worker that has stopped or is not known, and InvalidOption for another
    command.

    Example::

        for process in WorkerProcess.objects.filter(host="web-1", stopped_at=None):
            command_worker(process.id, "quiet")
    """
    if command not in get_args(Command):
        raise InvalidOption(f"expected 'quiet', 'resume' or 'stop', got: {command!r}.", code="act-arguments")
    with atomic():
        if not command_process(id, command):
            raise WorkerNotFound(f"no running worker has the id {id!r}, so none was told to {command}.")
        on_commit(wake_workers)  # so that it is obeyed at once
