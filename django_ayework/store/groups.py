"""Groups and chains."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from django.db.models import Exists, OuterRef

from django_ayework.models import Group, Work
from django_ayework.rules.states import Status
from django_ayework.store.bulk import update_rows
from django_ayework.store.database import chunked, dialect, fetch, matching, rows
from django_ayework.store.rows import COLUMNS, WorkRow, find_row, rows_of

# Groups: counts and value.

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

    def adding(self, open: int, total: int, dead: int, now: datetime) -> GroupRow:
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
    groups = rows(Group).select_for_update().order_by("id")
    return {row[0]: GroupRow._make(row) for row in matching(groups, "id", sorted(ids), *GroupRow._fields)}


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
    if dialect().has_arrays:
        found = fetch(COUNT, (open, total, dead, value, final, open, open, now, id), often=True)
        return GroupRow._make(found[0]) if found else None
    known = lock_groups([id]).get(id)
    gained = known and known.adding(open, total, dead, now).saying(value, final)
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
    members = rows(Work).filter(group_id=OuterRef("id"))
    emptied = [id for (id,) in matching(rows(Group).filter(~Exists(members)), "id", sorted(ids), "id")]
    for some in chunked(emptied):
        rows(Group).filter(id__in=some).delete()
    return emptied


# Chains: a first work and its continuations.


def last_step(chain_id: str) -> WorkRow | None:
    """Read the last work of a chain; None when there is no such chain.

    The first work is read first: a step ends and its continuation is inserted in one commit, so if none is
    seen in the later statement, there was none when the step was read.
    """
    first = find_row(chain_id)
    steps = rows_of(rows(Work).filter(chain_id=chain_id).order_by("-chain_index")[:1])
    return steps[0] if steps else first


def steps_from(chain_id: str, start: int, limit: int) -> list[WorkRow]:
    """Read works of a chain in order, from this index on; none of a chain whose first work is alone."""
    steps = rows(Work).filter(chain_id=chain_id, chain_index__gte=start)
    return rows_of(steps.order_by("chain_index")[:limit])


def last_steps(chain_ids: Iterable[str]) -> dict[str, WorkRow]:
    """Read the last work of each chain that exists; the first works first, as in :func:`last_step`."""
    ids = list(chain_ids)
    firsts = matching(rows(Work).all(), "id", ids, *COLUMNS)
    later = matching(rows(Work).order_by("chain_id", "chain_index"), "chain_id", ids, *COLUMNS)
    return {row.chain: row for row in map(WorkRow._make, [*firsts, *later])}


def chain_ends(chain_ids: Iterable[str]) -> dict[str, Status]:
    """Return the status of the last work of each chain that exists."""
    return {id: Status(row.status) for id, row in last_steps(chain_ids).items()}


def chains_of(work_ids: Iterable[str]) -> dict[str, str]:
    """Read the chains of those works that exist."""
    return {id: chain or id for id, chain in matching(rows(Work).all(), "id", work_ids, "id", "chain_id")}


def chains_of_steps(chain_ids: Iterable[str]) -> dict[str, str]:
    """Return the chain of each work of these chains; its id is that of a first work, which may be gone."""
    firsts = {id: id for id in chain_ids}
    return firsts | dict(matching(rows(Work).all(), "chain_id", firsts, "id", "chain_id"))
