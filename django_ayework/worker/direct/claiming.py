"""Claiming of works that skip the queue: these and no others, within what operators allow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from functools import partial

from django_ayework.conf import get_settings
from django_ayework.flow.controls import current_controls
from django_ayework.rules.controls import Controls
from django_ayework.rules.durations import later
from django_ayework.rules.rationing import capped
from django_ayework.store import transitions
from django_ayework.store.clock import clock
from django_ayework.store.controls import hold_type_controls, running_counts
from django_ayework.store.database import in_own_transaction
from django_ayework.store.rows import WorkRow
from django_ayework.worker.attempts.delivery import Delivery
from django_ayework.worker.claiming.claimer import delivered


def claim_directly(works: Sequence[WorkRow], worker: str) -> list[Delivery]:
    """Lease works that nobody has claimed yet; what is paused, at a limit or declined stays in the queue."""
    controls, now = current_controls(), clock.now()
    permitted = [row for row in works if controls.permits(row.queue, row.type)]
    limited = sorted({row.type for row in permitted if controls.of(row.type).max_running})
    claim = partial(claim_within, permitted, limited, controls, worker, now)
    return delivered(in_own_transaction(claim) if limited else claim(), worker)


def claim_within(
    works: Sequence[WorkRow], limited: list[str], controls: Controls, worker: str, now: datetime
) -> list[WorkRow]:
    """Lock the limited types' rows, then count what runs, then claim what there is room for.

    As workers do: the count, in a later statement than the lock, misses no claim of a rival's. Works of a
    type whose row is locked elsewhere are left to workers.
    """
    contended = set(limited).difference(hold_type_controls(limited, now)) if limited else set()
    works = [row for row in works if row.type not in contended]
    running = running_counts(limited) if limited else {}
    room = capped(Counter(row.type for row in works), controls, running)
    fitting = []
    for row in works:
        if room[row.type] > 0:
            room[row.type] -= 1
            fitting.append(row)
    return claim_some(fitting, worker, now)


def claim_some(works: Sequence[WorkRow], worker: str, now: datetime) -> list[WorkRow]:
    """Lease works for as long as the settings say, in the order in which they were enqueued."""
    if not works:
        return []
    leased_until = later(now, get_settings().lease)
    claimed = {
        row.id: row for row in transitions.claim_new([row.id for row in works], worker, now, leased_until)
    }
    return [claimed[row.id] for row in works if row.id in claimed]
