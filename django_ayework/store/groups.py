"""Groups: counts and value."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from django.db.models import Exists, OuterRef

from django_ayework.models import Group, Work
from django_ayework.store.bulk import update_rows
from django_ayework.store.database import chunked, fetch, is_postgresql, rows

GROUP = Group._meta.db_table


class GroupRow(NamedTuple):
    """A group's row."""

    id: str
    open: int = 0
    total: int = 0
    dead: int = 0
    value: str | None = None
    final: bool = False
    done_at: datetime | None = None

    def gaining(self, open: int, total: int, dead: int, now: datetime) -> GroupRow:
        """Return the group with so many more members, or less; it is done when the last one ends."""
        still_open = self.open + open
        return self._replace(
            open=still_open,
            total=self.total + total,
            dead=self.dead + dead,
            done_at=None if still_open > 0 else self.done_at if self.done_at and not open else now,
        )

    def saying(self, value: str | None, final: bool) -> GroupRow:
        """Return the group with this value, if one is given and none is final yet."""
        return self if value is None or self.final else self._replace(value=value, final=final)


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


#: The same as ``GroupRow.gaining`` and ``GroupRow.saying`` say, under the row's lock.
COUNT = f"""
UPDATE {GROUP}
SET open = open + %s, total = total + %s, dead = dead + %s,
    value = CASE WHEN final THEN value ELSE coalesce(%s, value) END, final = final OR %s,
    done_at = CASE WHEN open + %s > 0 THEN NULL WHEN done_at IS NOT NULL AND %s = 0 THEN done_at ELSE %s END
WHERE id = %s
RETURNING {", ".join(f'"{name}"' for name in GroupRow._fields)}
"""


def count_in_group(
    id: str, open: int, total: int, dead: int, now: datetime, value: str | None = None, final: bool = False
) -> GroupRow | None:
    """Let a group gain so many members, and this value if one is given; lock it, and return it.

    None if it is not there.
    """
    if is_postgresql():
        found = fetch(COUNT, (open, total, dead, value, final, open, open, now, id), often=True)
        return GroupRow._make(found[0]) if found else None
    known = lock_groups([id]).get(id)
    gained = known and known.gaining(open, total, dead, now).saying(value, final)
    write_groups([gained] if gained else [])
    return gained


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
