"""Whether stored works fit the code that is loaded: each input is read and bound as a worker does it.

Nothing is written, no row is locked, and no handler is called.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django_ayework.define.requests import GATE_TYPE, GateRequest, WorkRequest
from django_ayework.define.schedules import schedules
from django_ayework.define.types import AnyWorkType, BatchType, registry
from django_ayework.errors import NotDecodable
from django_ayework.flow.explain import condition_of, live_workers
from django_ayework.flow.payloads import decode_releases, encoded_input, read_input
from django_ayework.flow.schedules import is_orphan
from django_ayework.flow.startup_checks import known_queues
from django_ayework.models import Schedule
from django_ayework.rules.causes import normalised
from django_ayework.rules.formatting import error_text
from django_ayework.rules.predeploy import Cause, Misfit, MisfitCounts, MisfitGroup, Subject, unknown_tags
from django_ayework.rules.states import Status
from django_ayework.store.database import clock, sync_only
from django_ayework.store.dependencies import read_waiters
from django_ayework.store.schedules import all_schedules
from django_ayework.store.selection import StoredWork, stored_works

#: Running works are among them: a deployment stops their workers, and the new code runs them again.
NOT_ENDED = (Status.SCHEDULED, Status.PENDING, Status.BLOCKED, Status.RUNNING)


@dataclass(frozen=True, slots=True)
class CheckProgress:
    """How far a check is: works and misfits so far, and seconds since its start."""

    works: int
    misfits: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FitReport:
    """What does not fit. ``complete``: all works were looked at; otherwise a bound has ended the check.

    ``groups`` are the misfits, the largest group first, notes last. ``others`` counts misfits beyond the
    groups that are listed.
    """

    at: datetime
    fits: bool
    complete: bool
    works: int
    schedules: int
    seconds: float
    groups: list[MisfitGroup]
    others: int


@sync_only
def check_fit(
    *,
    dead: bool,
    queues: Collection[str],
    most: int | None,
    seconds: float | None,
    report: Callable[[CheckProgress], object],
) -> FitReport:
    """Check all stored works and schedules against the types that this process has loaded.

    ``dead`` includes dead works, for those that are to be retried. ``queues`` are those that workers of the
    new code will serve; without them, queues count as known that a type or a live worker names. The check
    ends early after ``most`` works or so many ``seconds``. ``report`` is called after each few works. Memory
    does not grow with the number of works.
    """
    now, started = clock.read(), time.monotonic()
    known, counts, schedules_there = KnownQueues(queues, now), MisfitCounts(), all_schedules()
    for row in schedules_there:
        counts.add(schedule_misfits(row), row.name)
    works, is_complete = 0, True
    for some in stored_works((*NOT_ENDED, Status.DEAD) if dead else NOT_ENDED, now):
        passed = time.monotonic() - started
        if is_over(works, most, passed, seconds):
            is_complete = False
            break
        for work, misfits in misfits_of(some, known):
            counts.add(misfits, work.id)
        works += len(some)
        report(CheckProgress(works, counts.total, passed))
    groups = counts.groups(registry.names(), known.names)
    return FitReport(
        at=now,
        fits=not counts.others and not any(group.blocks for group in groups),
        complete=is_complete,
        works=works,
        schedules=len(schedules_there),
        seconds=round(time.monotonic() - started, 3),
        groups=groups,
        others=counts.others,
    )


def is_over(works: int, most: int | None, passed: float, seconds: float | None) -> bool:
    """Tell whether a bound is reached: of works, or of seconds."""
    return (most is not None and works >= most) or (seconds is not None and passed >= seconds)


class KnownQueues:
    """The queues in which works are served, as far as this can be known before a deployment."""

    def __init__(self, given: Collection[str], now: datetime) -> None:
        workers = [] if given else [worker.queues for worker in live_workers(now)]
        #: A live worker serves all queues.
        self.are_all = any(not queues for queues in workers)
        of_workers = {name for queues in workers for name in queues.split(",")}
        self.names = frozenset(given or {*known_queues(), *of_workers})

    def __contains__(self, queue: str) -> bool:
        return self.are_all or queue in self.names


# Works


def misfits_of(works: list[StoredWork], known: KnownQueues) -> Iterator[tuple[StoredWork, list[Misfit]]]:
    """Yield each work that does not fit, with why."""
    waiters = read_waiters([work.id for work in works if work.status == Status.BLOCKED])
    for work in works:
        found = [] if work.queue in known else [Misfit(Subject.WORK, Cause.UNKNOWN_QUEUE, work.queue)]
        if work.id in waiters and condition_of(waiters[work.id]) is None:
            found.append(unreadable_gate("condition"))
        found += gate_misfits(work, known) if work.type == GATE_TYPE else input_misfits(work.type, work.input)
        if found:
            yield work, found


def input_misfits(type: str, text: str, subject: Subject = Subject.WORK) -> list[Misfit]:
    """Return why a stored input does not fit the type of this name; nothing if it does."""
    work_type = registry.find(type)
    if work_type is None:
        return [Misfit(subject, Cause.UNKNOWN_TYPE, type)]
    then = work_type.settings.then
    is_lost = then is not None and registry.find(then) is None
    found = [Misfit(subject, Cause.UNKNOWN_TARGET, type, str(then))] if is_lost else []
    try:
        arguments = read_input(text, work_type)
    except Exception as error:  # a codec of the project's own may raise anything
        return [*found, Misfit(subject, Cause.UNREADABLE_INPUT, type, normalised(error_text(error)))]
    return [
        *found,
        *binding_misfits(subject, work_type, arguments),
        *(Misfit(subject, Cause.UNKNOWN_VALUE, type, tag) for tag in unknown_tags(arguments)),
    ]


def binding_misfits(subject: Subject, work_type: AnyWorkType, arguments: Mapping[str, Any]) -> list[Misfit]:
    """Return which arguments are missing or unexpected."""
    missing, unexpected = work_type.differences(arguments)
    return [
        *(Misfit(subject, Cause.MISSING_ARGUMENT, work_type.name, name) for name in missing),
        *(Misfit(subject, Cause.UNEXPECTED_ARGUMENT, work_type.name, name) for name in unexpected),
    ]


def gate_misfits(gate: StoredWork, known: KnownQueues) -> list[Misfit]:
    """Return why the works that a gate releases do not fit."""
    try:
        releases = decode_releases(gate.input)
    except NotDecodable as error:
        return [unreadable_gate(normalised(error_text(error)))]
    return [misfit for request in releases for misfit in release_misfits(request, known)]


def release_misfits(request: WorkRequest[Any, Any], known: KnownQueues) -> list[Misfit]:
    """Return why a stored request does not fit; of a gate among them, its own releases."""
    if isinstance(request, GateRequest):
        return [misfit for each in request.releases for misfit in release_misfits(each, known)]
    queue = request.options.get("queue")
    found = input_misfits(request.type, encoded_input(request), Subject.RELEASE)
    if queue is not None and queue not in known:
        found.append(Misfit(Subject.RELEASE, Cause.UNKNOWN_QUEUE, queue))
    return found


def unreadable_gate(detail: str) -> Misfit:
    """Return that a part of a gate cannot be read."""
    return Misfit(Subject.WORK, Cause.UNREADABLE_GATE, GATE_TYPE, detail)


# Schedules


def schedule_misfits(row: Schedule) -> list[Misfit]:
    """Return why a schedule cannot be fired by the code that is loaded."""
    if not row.enabled:
        return []
    if row.origin == "admin":
        return stored_schedule_misfits(row)
    if is_orphan(row):
        return [Misfit(Subject.SCHEDULE, Cause.UNDECLARED_SCHEDULE, row.name)]
    declared = schedules.find(row.name)
    if declared is None or not isinstance(declared.run, WorkRequest):
        return []
    is_known = registry.find(declared.run.type) is not None
    return [] if is_known else [Misfit(Subject.SCHEDULE, Cause.UNKNOWN_TYPE, declared.run.type)]


def stored_schedule_misfits(row: Schedule) -> list[Misfit]:
    """Return why a schedule that was made in the admin does not fit: its type, or the input that it has."""
    work_type = registry.find(row.function)
    if work_type is None:
        return [Misfit(Subject.SCHEDULE, Cause.UNKNOWN_TYPE, row.function)]
    try:
        arguments = json.loads(row.input or "{}")
    except ValueError as error:
        detail = normalised(error_text(error))
        return [Misfit(Subject.SCHEDULE, Cause.UNREADABLE_INPUT, work_type.name, detail)]
    if isinstance(work_type, BatchType):  # its one input may be anything
        return []
    if not isinstance(arguments, dict):
        return [Misfit(Subject.SCHEDULE, Cause.UNREADABLE_INPUT, work_type.name, "no arguments by name")]
    return binding_misfits(Subject.SCHEDULE, work_type, arguments)
