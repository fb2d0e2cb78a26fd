"""Staging: scheduled works whose moment has come become pending, so that claiming never walks over others."""

from __future__ import annotations

from datetime import datetime

from django_ayework.models import Work
from django_ayework.rules.states import Status
from django_ayework.store.database import atomic, fetch, is_postgresql, rows
from django_ayework.store.stand_ins import StandIn

STAGE = """
UPDATE django_ayework_work
SET status = 'pending'
WHERE id = ANY(ARRAY(
    SELECT id
    FROM django_ayework_work
    WHERE status = 'scheduled' AND run_at <= %s
    ORDER BY run_at
    LIMIT %s
    FOR UPDATE SKIP LOCKED
))
RETURNING id
"""


def stage(now: datetime, limit: int) -> int:
    """Make up to ``limit`` due works pending, the longest due first; return how many."""
    if is_postgresql():
        return len(fetch(STAGE, (now, limit)))
    with atomic():
        scheduled = rows(Work).filter(status=Status.SCHEDULED).alias(due_at=StandIn("run_at", "due_at"))
        due = scheduled.filter(due_at__lte=now).order_by("due_at")
        ids = list(due.select_for_update(skip_locked=True).values_list("id", flat=True)[:limit])
        return rows(Work).filter(id__in=ids).update(status=Status.PENDING) if ids else 0
