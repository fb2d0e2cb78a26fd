"""Groups: counts and value."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from django_ayework.models import Group
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
