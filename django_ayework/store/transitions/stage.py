"""Staging: scheduled works whose moment has come become pending, so that claiming never walks over others."""

from __future__ import annotations

from datetime import datetime

from django_ayework.models import Work
from django_ayework.rules.states import Status
from django_ayework.store.database import atomic, fetch, is_postgresql, rows
from django_ayework.store.stand_ins import on_timeline

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
        scheduled = on_timeline(rows(Work), Status.SCHEDULED)
        due = scheduled.filter(moment__lte=now).order_by("moment")
        ids = list(due.select_for_update(skip_locked=True).values_list("id", flat=True)[:limit])
        return rows(Work).filter(id__in=ids).update(status=Status.PENDING) if ids else 0
