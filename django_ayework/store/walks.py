"""Walking over works in the order of an index: how far to look, where to go on, which names there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from django.db.models import BooleanField, F, Func, Q, QuerySet, Value

from django_ayework.models import Work
from django_ayework.store.database import by_index, dialect, fetch

WORK = Work._meta.db_table
#: The lookups of the operators that compare a row with a place.
LOOKUPS = {"<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}


class Place(NamedTuple):
    """A place in the order of a moment and the id."""

    moment: Any
    id: str


def compared(column: str, operator: Literal["<", "<=", ">", ">="], place: Place) -> Any:
    """Return the condition that a row compares so with a place; an index is searched for it."""
    if not dialect().compares_rows:
        beyond = Q(**{f"{column}__{LOOKUPS[operator[0]]}": place.moment})
        return beyond | Q(**{column: place.moment, f"id__{LOOKUPS[operator]}": place.id})
    moment: Any = Work._meta.get_field(column)
    here = Func(F(column), F("id"), function="", output_field=BooleanField())
    values = Value(place.moment, output_field=moment), Value(place.id)
    there = Func(*values, function="", output_field=BooleanField())
    joiner = f" {operator} "
    return Func(here, there, template="%(expressions)s", arg_joiner=joiner, output_field=BooleanField())


def place_after(works: QuerySet[Any], column: str, count: int) -> Place | None:
    """Return the place of the last of so many works, the latest first; None when there are fewer."""
    ordered = works.order_by(f"-{column}", "-id").values_list(column, "id")
    found = ordered[count - 1 : count].first()
    return found and Place._make(found)


def ids_in_order(works: QuerySet[Any], most: int) -> list[str]:
    """Return the ids of the first works in the order of an index, even where few works match."""
    with by_index():
        return list(works.values_list("pk", flat=True)[:most])


# Names that works have, found by one entry of an index each.

NEXT_NAME = f"SELECT MIN({{column}}) FROM {WORK} WHERE status = 'pending' AND {{column}} > {{after}}"
#: Where an index holds some works only, its condition is to be named.
HAS_NAME = " AND NOT ({column} = '')"
NAMES = f"""
WITH RECURSIVE each(name, number) AS (
    SELECT ({NEXT_NAME.format(column="{column}", after="''")}{HAS_NAME}), 1
    UNION ALL
    SELECT ({NEXT_NAME.format(column="{column}", after="each.name")}{HAS_NAME}), each.number + 1 FROM each
    WHERE each.name IS NOT NULL AND each.number < %s
)
SELECT name FROM each WHERE name IS NOT NULL
"""


def pending_names(column: str, most: int) -> list[str]:
    """Return the first queues, or fairness labels, that pending works have: at most so many."""
    if dialect().recurses_by_index:
        return [name for (name,) in fetch(NAMES.format(column=column), (most,))]
    names: list[str] = []
    statement = NEXT_NAME.format(column=column, after="%s")
    while len(names) < most:
        [(name,)] = fetch(statement, (names[-1] if names else "",))
        if name is None:
            break
        names.append(name)
    return names


# The columns that a term names, by one statement.


class Named(NamedTuple):
    """Which columns have a term as their value in some work."""

    id: bool
    group_id: bool
    chain_id: bool
    unit: bool
    about: bool
    unit_of_type: bool


def named_by(term: str, pair: tuple[str, str] | None, types: Sequence[str]) -> Named:
    """Ask which columns have this term: ids, units of these types, what a pair of label and key names."""
    in_types = f"type IN ({', '.join(['%s'] * len(types))}) AND unit = %s"
    conditions: list[tuple[str, Sequence[str]]] = [
        ("id = %s", (term,)),
        ("group_id = %s", (term,)),
        ("chain_id = %s", (term,)),
        (in_types, (*types, term)) if types else never(),
        never() if pair is None else ("about_type = %s AND about_id = %s", (pair[0].lower(), pair[1])),
        never() if pair is None else ("type = %s AND unit = %s", pair),
    ]
    parts = ", ".join(f"EXISTS(SELECT 1 FROM {WORK} WHERE {sql})" for sql, _ in conditions)
    [found] = fetch(f"SELECT {parts}", [param for _, params in conditions for param in params])
    return Named._make(map(bool, found))


def never() -> tuple[str, Sequence[str]]:
    """Return the condition that no work meets."""
    return "1 = 0", ()
