"""Bulk actions: locked for a page, stopped, resumed, deleted in the end."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from django_ayework.models import BulkAction
from django_ayework.store.database import rows

RUNNING = "running"


def lock_due_action(now: datetime, actions: Collection[str]) -> BulkAction | None:
    """Lock the bulk action that is due for the longest, of these acts, unless another worker has it."""
    due = rows(BulkAction).filter(next_at__lte=now, action__in=sorted(actions), status=RUNNING)
    return due.order_by("next_at", "id").select_for_update(skip_locked=True).first()


def lock_running_action(id: str) -> BulkAction | None:
    """Lock a bulk action that is running; wait for a worker that carries out a page of it."""
    return rows(BulkAction).filter(id=id, status=RUNNING).select_for_update().first()


def next_action_due(actions: Collection[str]) -> datetime | None:
    """Return when the next page is due of a bulk action of these acts."""
    waiting = rows(BulkAction).filter(next_at__isnull=False, action__in=sorted(actions))
    moment: datetime | None = waiting.order_by("next_at").values_list("next_at", flat=True).first()
    return moment


def change_action(id: str, was: Collection[str], **columns: Any) -> bool:
    """Write columns of a bulk action that has one of these statuses; return whether it had."""
    return rows(BulkAction).filter(id=id, status__in=list(was)).update(**columns) == 1


def delete_ended_actions(before: datetime, limit: int) -> int:
    """Delete bulk actions that ended before a moment; return how many."""
    ended = rows(BulkAction).filter(next_at__isnull=True, ended_at__lt=before)
    ids = list(ended.order_by("ended_at").values_list("id", flat=True)[:limit])
    return rows(BulkAction).filter(id__in=ids, next_at__isnull=True).delete()[0] if ids else 0
