"""Deleting what has been kept long enough."""

from __future__ import annotations

from datetime import datetime

from django.db.models import Exists, OuterRef

from django_ayework.models import Edge, Group, Work
from django_ayework.rules.states import LIVE
from django_ayework.store.database import atomic, rows
from django_ayework.store.deletion import erase
from django_ayework.store.groups import delete_emptied, lock_groups
from django_ayework.store.stand_ins import ended_as


def delete_ended(status: str, before: datetime, limit: int) -> int:
    """Delete up to ``limit`` works of a terminal status that ended before; return how many.

    Works whose group is open, or that a live waiter watches, are kept.
    """
    with atomic():
        found = list(prunable(status, before).values_list("id", "group_id")[:limit])
        deleted = erase([id for id, _ in found])
        groups = {group for _, group in found if group}
        delete_emptied(lock_groups(groups))
    return deleted


def prunable(status: str, before: datetime):  # type: ignore[no-untyped-def]  # a queryset of an annotated model
    """Return the works that may go, the longest ended first."""
    open_group = rows(Group).filter(id=OuterRef("group_id"), open__gt=0)
    live = rows(Work).filter(id=OuterRef("waiter_id"), status__in=[str(s) for s in LIVE])
    watched = rows(Edge).filter(Exists(live), watched_id__in=[OuterRef("id"), OuterRef("chain_id")])
    ended = ended_as(rows(Work), status).filter(moment__lt=before).order_by("moment")
    return ended.filter(~Exists(open_group), ~Exists(watched)).select_for_update(skip_locked=True)
