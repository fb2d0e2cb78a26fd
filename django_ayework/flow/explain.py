"""Why a work is not running."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from django.utils.timezone import localtime

from django_ayework.conf import doer_of, get_settings
from django_ayework.define.requests import GATE_TYPE
from django_ayework.define.types import registry
from django_ayework.errors import WorkNotFound
from django_ayework.flow.controls import current_controls
from django_ayework.flow.payloads import decode_options
from django_ayework.models import Waiter, WorkerProcess
from django_ayework.rules.conditions import Condition, condition_from_plain, needs_all_open
from django_ayework.rules.controls import Controls
from django_ayework.rules.explain import (
    NO_WAITER,
    NO_WORKER,
    Code,
    Explanation,
    Reason,
    absence,
    blocked,
    bound,
    called,
    limits,
    not_queued,
    pauses,
    pending,
    scheduled,
)
from django_ayework.rules.explain_attempts import (
    cancelled,
    dead,
    doer_limits,
    history,
    in_doer,
    running,
    succeeded,
    unsatisfiable,
)
from django_ayework.rules.formatting import if_renamed, is_parked, phrase
from django_ayework.rules.identity import require_text
from django_ayework.rules.retry import has_expired
from django_ayework.rules.states import Reason as Cause
from django_ayework.rules.states import Status
from django_ayework.store.attempts import last_outcome
from django_ayework.store.controls import running_counts
from django_ayework.store.database import clock, sync_only
from django_ayework.store.dependencies import WaiterRow, blocked_behind, first_open, missed_by, read_waiters
from django_ayework.store.lanes import is_claimed_alone, lanes_of, works_ahead
from django_ayework.store.processes import find_process, processes_seen_since
from django_ayework.store.rows import WorkRow, chain_ends, find_row, statuses_of

#: A worker without a heartbeat for this long counts as gone; one is due every 10 seconds.
GONE_AFTER = timedelta(seconds=35)
#: Watched works that an explanation names.
NAMED = 5
#: Steps that are followed to find a circle of blocked works, and edges that are read for each step.
MOST_STEPS, MOST_EDGES = 20, 1000
#: Works ahead are counted up to this many.
MOST_AHEAD = 1000

# Workers


def live_workers(now: datetime) -> list[WorkerProcess]:
    """Return the workers that are alive."""
    return processes_seen_since(now - GONE_AFTER)


# Blocked works


def why_blocked(row: WorkRow, now: datetime) -> list[Reason]:
    """Return the works that a work waits for; if a worker has to decide it, also that none is alive."""
    waiter = read_waiters([row.id]).get(row.id)
    waiting = [NO_WAITER] if waiter is None else why_waiting(row, waiter)
    reasons = [*waiting, *bound(row.deadline, now, opens=True)]
    needs_worker = (waiter is not None and waiter.recheck) or has_expired(row.deadline, now)
    if needs_worker and not live_workers(now):
        reasons.append(NO_WORKER)
    return reasons


def why_waiting(row: WorkRow, waiter: WaiterRow) -> list[Reason]:
    """Return the condition of a waiter, and the first works that keep it waiting.

    What does not exist is an own reason for a gate that was enqueued alone, and never expires. In a workflow
    another gate mostly queues it.
    """
    watched = first_open(waiter.work_id, NAMED)
    statuses = statuses_of(watch.id for watch in watched if not watch.chain)
    statuses |= chain_ends(watch.id for watch in watched if watch.chain)
    open = [(watch.id, statuses.get(watch.id)) for watch in watched]
    missed = missed_by(waiter.work_id, NAMED) if waiter.missed else []
    reasons = blocked(waiter, condition_of(waiter), open, missed, circle_of(waiter))
    absent = [id for id, status in open if status is None]
    is_alone = row.type == GATE_TYPE and row.group_id is None and row.deadline is None
    return [*reasons, not_queued(absent)] if absent and is_alone and waits_for_all(waiter) else reasons


def circle_of(waiter: WaiterRow) -> list[str]:
    """Return a circle of works, from this one on. Each waits for the next, and the last for the first.

    None are returned for a circle of more steps than are followed, nor for one in which a work may start
    before the next has ended.
    """
    waiting_for = {waiter.work_id: ""}  # a work that waits for it
    waiters = [waiter]
    for _ in range(MOST_STEPS):
        needy = [each.work_id for each in waiters if waits_for_all(each)]
        last = []
        for id, other in blocked_behind(needy, MOST_EDGES):
            if other == waiter.work_id:
                path = [id]
                while path[-1] != waiter.work_id:
                    path.append(waiting_for[path[-1]])
                return path[::-1]
            if other not in waiting_for:
                waiting_for[other] = id
                last.append(other)
        if not last:
            return []
        waiters = list(read_waiters(last).values())
    return []


def waits_for_all(waiter: WaiterRow) -> bool:
    """Tell whether a waiter waits for each work whose outcome is open."""
    condition = condition_of(waiter)
    return condition is not None and needs_all_open(condition, waiter.tally)


def condition_of(waiter: WaiterRow | Waiter) -> Condition | None:
    """Return the condition, or None when it cannot be read."""
    try:
        return condition_from_plain(json.loads(waiter.condition))
    except (ValueError, TypeError):
        return None


# Ended works


def why_dead(row: WorkRow, now: datetime) -> list[Reason]:
    """Return why a work died, and what to do."""
    if row.reason == Cause.UNSATISFIABLE:
        return unsatisfiable(row, ended_by(row), *missed_members(row), now)
    renamed = if_unknown(row.type) if row.reason == Cause.UNKNOWN_TYPE else ""
    return dead(row, row.type == GATE_TYPE, ended_by(row), renamed, now)


def ended_by(row: WorkRow) -> str | None:
    """Return the worker that ended a work, by its address while its row is there; None if none did."""
    worker = find_process(row.completed_by) if row.completed_by else None
    return row.completed_by if worker is None else called(worker)


def missed_members(row: WorkRow) -> tuple[list[tuple[str, str, str | None]], int]:
    """Return the first works that a waiter missed, and how many it missed."""
    waiter = read_waiters([row.id]).get(row.id)
    if waiter is None:
        return [], 0
    missed = missed_by(row.id, NAMED)
    statuses = statuses_of(id for id, _ in missed)
    return [(id, outcome, statuses.get(id)) for id, outcome in missed], waiter.missed


# Running works


def why_running(row: WorkRow, now: datetime) -> list[Reason]:
    """Return the worker of a work; if the lease has lapsed, also that no worker is there to reclaim it."""
    attempts = decode_options(row.options).retry.attempts
    seen = find_process(row.worker) if row.worker else None
    reasons = running(row, seen, attempts, now, GONE_AFTER)
    if doer_of(registry.find(row.type)) is not None:
        reasons.append(in_doer(row.type))
    has_lapsed = row.leased_until is not None and row.leased_until < now
    return [*reasons, *absence(row.queue, live_workers(now))] if has_lapsed else reasons


# Pending and scheduled works


def why_pending(row: WorkRow, now: datetime) -> list[Reason]:
    """Return why a due work is not claimed."""
    controls = current_controls()
    reasons = pauses(row.type, row.queue, controls) or why_not_taken(row, controls, now)
    return [*reasons, *past_of(row, now), *bound(row.deadline, now)]


def why_not_taken(row: WorkRow, controls: Controls, now: datetime) -> list[Reason]:
    """Return the limits that hold the type back, the workers that could claim, and the works ahead."""
    types = [lane.type for lane in lanes_of([row.queue])]
    running = running_counts([row.type]) if controls.of(row.type).max_running else {}
    held = limits(row.type, row.queue, running.get(row.type, 0), types, controls)
    if doer_of(registry.find(row.type)) is not None:
        held.append(doer_limits(row.type))
    ranked = any(controls.of(type).is_ranked for type in types)
    ahead = works_ahead(row, [row.type] if ranked else claimed_together(row.type, types), MOST_AHEAD)
    poll, waited = get_settings().poll_interval, (now - row.run_at).total_seconds()
    reasons = pending(row.queue, live_workers(now), ahead, MOST_AHEAD, poll, waited)
    return [*held, *(reason for reason in reasons if not held or reason.code is not Code.NEXT)]


def claimed_together(type: str, types: Iterable[str]) -> list[str]:
    """Return those of the types of a queue whose works are claimed together with those of this one."""
    if is_claimed_alone(type):
        return [type]
    doer = doer_of(registry.find(type))
    others = (each for each in types if not is_claimed_alone(each))
    return [each for each in others if doer_of(registry.find(each)) is doer]


def why_scheduled(row: WorkRow, now: datetime) -> list[Reason]:
    """Return the moment that a work waits for, and why."""
    workers = live_workers(now) if row.run_at <= now else None
    paused = pauses(row.type, row.queue, current_controls())
    reasons = [*scheduled(row.run_at, now, row.queue, workers), *paused]
    return [*reasons, *past_of(row, now), *bound(row.deadline, now, due=row.run_at)]


def past_of(row: WorkRow, now: datetime) -> list[Reason]:
    """Return why a work waits again, unless this is its first time."""
    attempts = decode_options(row.options).retry.attempts
    grace = timedelta(seconds=get_settings().unknown_type_grace)
    renamed = if_unknown(row.type) if is_parked(row.error) else ""
    return history(row, attempts, last_outcome(row.id, row.attempt), grace, renamed, now)


def if_unknown(type: str) -> str:
    """Return the advice for a type that workers do not know; this process may have newer code than they."""
    if (known := registry.find(type)) is not None:
        if "<locals>" in known.handler.__qualname__:
            return phrase(
                "This process knows the type, because it has called the function that contains the handler: "
                "call that function in works.py, or write the handler at the top level, and restart the "
                "workers."
            )
        return phrase("This process knows the type: restart the workers, so that they load the same code.")
    return if_renamed(type, registry.names())


# Every status

BY_STATUS: dict[Status, Callable[[WorkRow, datetime], list[Reason]]] = {
    Status.PENDING: why_pending,
    Status.SCHEDULED: why_scheduled,
    Status.BLOCKED: why_blocked,
    Status.RUNNING: why_running,
    Status.SUCCESS: lambda row, now: succeeded(row, row.type == GATE_TYPE, ended_by(row), now),
    Status.DEAD: why_dead,
    Status.CANCELLED: lambda row, now: cancelled(row, ended_by(row), now),
}


@sync_only
def explain(id: str) -> Explanation:
    """Return why a work is not running, at this moment. Nothing is locked.

    Raises WorkNotFound.

    Example::

        print(explain(handle.id))
    """
    row = find_row(require_text(id))
    if row is None:
        raise WorkNotFound(
            f"no work has the id {id!r}: it was never queued, the transaction that queues it is not "
            "committed, or it has ended and was pruned.",
            id=id,
        )
    return explain_row(row)


def explain_row(row: WorkRow) -> Explanation:
    """Explain a work that was read, with moments in Django's current time zone."""
    now = localtime(clock.read())
    status = Status(row.status)
    return Explanation(row.id, status, tuple(BY_STATUS[status](row, now)))
