"""New works by column: what all of them share is said once, what none of them has is left out."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from django_ayework.store.insertion import ByColumn
from django_ayework.store.rows import COLUMNS, PLACE, WorkRow

#: Empty at birth, so left to the column's NULL.
UNSET_AT_BIRTH = frozenset(
    {"result", "progress", "worker", "leased_until", "started_at", "ended_at", "completed_by"}
)
INSERTED = tuple(name for name in COLUMNS if name not in UNSET_AT_BIRTH)

#: Takes from a row the values to insert.
values_of = itemgetter(*(PLACE[name] for name in INSERTED))


def by_column(works: Sequence[WorkRow]) -> ByColumn:
    """Return the columns of works, of which there must be some; one that is NULL in all is left out."""
    shared: dict[str, Any] = {}
    varying: dict[str, tuple[Any, ...]] = {}
    every = tuple(zip(*works, strict=True))
    for name in INSERTED:
        column = every[PLACE[name]]
        first = column[0]
        if name == "id" or column.count(first) < len(column):
            varying[name] = column
        elif first is not None:
            shared[name] = first
    return ByColumn(shared, varying)
