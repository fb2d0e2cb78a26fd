"""Writing many rows at once: one statement on PostgreSQL, one per distinct change elsewhere."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import Model

from django_ayework.store.database import chunked, fetch, is_postgresql, rows

Changes = Mapping[str, Mapping[str, Any]]


def update_rows(
    model: type[Model], changes: Changes, condition: str = "", params: Sequence[Any] = ()
) -> set[str]:
    """Set columns of rows by primary key; all changes name the same columns. Return the keys that moved.

    The caller holds the rows' locks, or passes PostgreSQL a ``condition`` that fences them.
    """
    if not changes:
        return set()
    if is_postgresql():
        return update_from_arrays(model, changes, condition, params)
    return update_one_by_one(model, changes)


def update_from_arrays(
    model: type[Model], changes: Changes, condition: str = "", params: Sequence[Any] = ()
) -> set[str]:
    """One UPDATE joined with arrays; the planner reads the rows through the primary key."""
    columns = list(next(iter(changes.values())))
    key = model._meta.pk
    fields = [key, *(model._meta.get_field(name) for name in columns)]
    arrays = [list(changes), *([change[name] for change in changes.values()] for name in columns)]
    types = [f"%s::{array_type(field)}" for field in fields]
    names = [f'"{field.column}"' for field in fields]  # type: ignore[union-attr]
    sql = (
        f'UPDATE "{model._meta.db_table}" AS w SET {", ".join(f"{name} = v.{name}" for name in names[1:])} '
        f"FROM unnest({', '.join(types)}) AS v({', '.join(names)}) "
        f"WHERE w.{names[0]} = v.{names[0]} {condition} RETURNING w.{names[0]}"
    )
    return {row[0] for row in fetch(sql, [*arrays, *params])}


def array_type(field: Any) -> str:
    """Return the PostgreSQL array type whose elements the column takes."""
    kind = field.get_internal_type()
    if kind in ("IntegerField", "BigAutoField"):
        return "bigint[]"
    return {"DateTimeField": "timestamptz[]", "BooleanField": "boolean[]"}.get(kind, "text[]")


def update_one_by_one(model: type[Model], changes: Changes) -> set[str]:
    """One UPDATE for all rows that change alike."""
    alike: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    for key, change in changes.items():
        alike[tuple(change.items())].append(key)
    for change_items, keys in alike.items():
        for some in chunked(keys):
            rows(model).filter(pk__in=some).update(**dict(change_items))
    return set(changes)
