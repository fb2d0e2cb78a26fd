"""New works by column: what all of them share is said once, what none of them has is left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from django_ayework.models import Work
from django_ayework.store.bulk import columns_of, quoted
from django_ayework.store.rows import COLUMNS, PLACE, WorkRow

#: Empty at birth, so left to the column's NULL.
UNSET_AT_BIRTH = frozenset(
    {"result", "progress", "worker", "leased_until", "started_at", "ended_at", "completed_by"}
)
INSERTED = tuple(name for name in COLUMNS if name not in UNSET_AT_BIRTH)
MOMENTS = ("deadline", "queued_at", "run_at")

#: Takes from a row the values to insert.
values_of = itemgetter(*(PLACE[name] for name in INSERTED))


@dataclass(frozen=True, slots=True)
class ByColumn:
    """Rows by column: ``shared`` has one value for all rows, ``varying`` has one for each."""

    shared: dict[str, Any]
    varying: dict[str, tuple[Any, ...]]

    @property
    def names(self) -> list[str]:
        """The columns, those that vary first."""
        return [*self.varying, *self.shared]


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


def into(names: Sequence[str]) -> str:
    """Return the table of works and these columns, as INSERT and COPY want them."""
    return f"{quoted(Work._meta.db_table)} ({columns_of(Work, names)})"
