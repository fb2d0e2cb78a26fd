"""Blocked works."""

from __future__ import annotations

import json
from datetime import datetime

from django_ayework.flow.explain.workers import live_workers
from django_ayework.rules.conditions import Condition, condition_from_plain
from django_ayework.rules.deadlines import has_expired
from django_ayework.rules.explaining.blocked import Wait, blocked
from django_ayework.rules.explaining.explanation import Reason
from django_ayework.rules.explaining.fleet import no_worker
from django_ayework.rules.explaining.waiting import bound
from django_ayework.store.chains import chain_ends
from django_ayework.store.rows import WorkRow, statuses_of
from django_ayework.store.waiters import WaiterRow, first_open, missed_by, read_waiters

#: Watched works that are named.
NAMED = 5


def why_blocked(row: WorkRow, now: datetime) -> list[Reason]:
    """Return what a work waits for; when that takes a worker, also that none is there."""
    waiter = read_waiters([row.id]).get(row.id)
    reasons = [*blocked(wait_of(waiter) if waiter else None), *bound(row.deadline, now, "open")]
    needs_worker = (waiter is not None and waiter.recheck) or has_expired(row.deadline, now)
    if needs_worker and not live_workers(now):
        reasons += no_worker()
    return reasons


def wait_of(waiter: WaiterRow) -> Wait:
    """Return what a waiter waits for."""
    watched = first_open(waiter.work_id, NAMED)
    statuses = statuses_of(watch.id for watch in watched if not watch.chain)
    statuses |= chain_ends(watch.id for watch in watched if watch.chain)
    return Wait(
        condition=condition_of(waiter),
        stored=waiter.condition,
        tally=waiter.tally,
        open=[(watch.id, statuses.get(watch.id)) for watch in watched],
        missed=missed_by(waiter.work_id, NAMED) if waiter.missed else [],
        recheck=waiter.recheck,
    )


def condition_of(waiter: WaiterRow) -> Condition | None:
    """Return the condition, or None when it cannot be read."""
    try:
        return condition_from_plain(json.loads(waiter.condition))
    except (ValueError, TypeError):
        return None
