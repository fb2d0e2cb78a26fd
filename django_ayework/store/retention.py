"""Deleting what has been kept long enough."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.db.models import Exists, OuterRef, QuerySet

from django_ayework.models import Edge, Group, Work
from django_ayework.rules.states import LIVE
from django_ayework.store.database import atomic, rows
from django_ayework.store.deletion import erase
from django_ayework.store.groups import delete_emptied, lock_groups
from django_ayework.store.stand_ins import ended_as, ended_by_type


def delete_ended(status: str, before: datetime, limit: int, type: str | None = None) -> int:
    """Delete up to ``limit`` works of a terminal status that ended before; return how many.

    They are of one type, or of any. The longest ended go first. Works whose group is open, or that a live
    waiter watches, are kept.
    """
    if type is None:
        ended = ended_as(rows(Work), status).filter(moment__lt=before).order_by("moment")
    else:
        ended = ended_by_type(rows(Work), status).filter(type=type, ended_at__lt=before).order_by("ended_at")
    with atomic():
        found = list(prunable(ended).values_list("id", "group_id")[:limit])
        deleted = erase([id for id, _ in found])
        groups = {group for _, group in found if group}
        delete_emptied(lock_groups(groups))
    return deleted


def prunable(ended: QuerySet[Any]) -> QuerySet[Any]:
    """Return those of the ended works that nobody may still need, and nobody else has locked."""
    open_group = rows(Group).filter(id=OuterRef("group_id"), open__gt=0)
    live = rows(Work).filter(id=OuterRef("waiter_id"), status__in=[str(s) for s in LIVE])
    watched = rows(Edge).filter(Exists(live), watched_id__in=[OuterRef("id"), OuterRef("chain_id")])
    return ended.filter(~Exists(open_group), ~Exists(watched)).select_for_update(skip_locked=True)


def types_ended(status: str) -> Iterator[tuple[str, datetime]]:
    """Yield each type that has works of a terminal status, and when the first of them ended.

    Each is found by one entry of an index, however many works a type has.
    """
    ended = ended_by_type(rows(Work), status).order_by("type", "ended_at").values_list("type", "ended_at")
    found = ended.first()
    while found is not None:
        yield found
        found = ended.filter(type__gt=found[0]).first()
