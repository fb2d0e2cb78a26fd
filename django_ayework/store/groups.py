"""Groups: counts and value."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from django.db.models import Exists, OuterRef

from django_ayework.models import Group, Work
from django_ayework.store.bulk import update_rows
from django_ayework.store.database import chunked, rows


class GroupRow(NamedTuple):
    """A group's row."""

    id: str
    open: int = 0
    total: int = 0
    dead: int = 0
    value: str | None = None
    final: bool = False
    done_at: datetime | None = None


def insert_groups(groups: Iterable[GroupRow]) -> None:
    """Insert new groups."""
    rows(Group).bulk_create([Group(**group._asdict()) for group in groups])


def lock_groups(ids: Iterable[str]) -> dict[str, GroupRow]:
    """Lock groups in id order."""
    locked: dict[str, GroupRow] = {}
    for some in chunked(sorted(ids)):
        chosen = rows(Group).select_for_update().filter(id__in=some).order_by("id")
        locked.update((row[0], GroupRow._make(row)) for row in chosen.values_list(*GroupRow._fields))
    return locked


def write_groups(groups: Iterable[GroupRow]) -> None:
    """Write locked groups."""
    changes = {}
    for group in groups:
        columns = group._asdict()
        changes[columns.pop("id")] = columns
    for some in chunked(list(changes.items())):
        update_rows(Group, dict(some))


def find_group(id: str) -> GroupRow | None:
    """Read a group; a work that is alone has none."""
    found = rows(Group).filter(id=id).values_list(*GroupRow._fields).first()
    return GroupRow._make(found) if found else None


def delete_emptied(ids: Iterable[str]) -> list[str]:
    """Delete those of these groups that have no work left; return their ids.

    The caller has locked them: of two transactions that delete the last works of one, the later sees it.
    """
    emptied: list[str] = []
    members = rows(Work).filter(group_id=OuterRef("id"))
    for some in chunked(sorted(ids)):
        emptied += rows(Group).filter(~Exists(members), id__in=some).values_list("id", flat=True)
    for some in chunked(emptied):
        rows(Group).filter(id__in=some).delete()
    return emptied
