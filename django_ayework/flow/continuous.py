"""Continuous types: whenever none of their works is due or running, the engine queues one by itself."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from functools import partial

from django_ayework.define.registry import registry
from django_ayework.errors import AyeworkError
from django_ayework.flow.enqueue import enqueue_one
from django_ayework.flow.events import report
from django_ayework.rules.durations import later
from django_ayework.store.clock import clock
from django_ayework.store.controls import (
    due_types,
    hold_type_controls,
    is_due_or_running,
    set_next_at,
)
from django_ayework.store.database import in_own_transaction

logger = logging.getLogger("django_ayework")


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
