"""Writing many rows at once: joined with arrays on PostgreSQL, chosen by CASE elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import Model

from django_ayework.store.database import chunked, connection, fetch, is_postgresql

Changes = Mapping[str, Mapping[str, Any]]

#: Rows in one CASE: each row is compared with every key, so more rows would cost more than round trips save.
CASES = 100


def update_rows(model: type[Model], changes: Changes) -> None:
    """Set columns of rows by primary key; all changes name the same columns. The caller holds the locks."""
    if changes:
        update = update_from_arrays if is_postgresql() else update_by_cases
        update(model, changes)


def update_from_arrays(
    model: type[Model], changes: Changes, condition: str = "", params: Sequence[Any] = ()
) -> set[str]:
    """One UPDATE joined with arrays; the planner reads the rows through the primary key.

    ``condition``, with its ``params``, fences rows (``w``) by what was given for them (``v``). Returns the
    keys that moved.
    """
    columns = list(next(iter(changes.values())))
    fields = [primary_key(model), *(field_of(model, name) for name in columns)]
    arrays = [list(changes), *([change[name] for change in changes.values()] for name in columns)]
    types = [f"%s::{array_type(field)}" for field in fields]
    names = [f'"{field.column}"' for field in fields]
    sql = (
        f'UPDATE "{model._meta.db_table}" AS w SET {", ".join(f"{name} = v.{name}" for name in names[1:])} '
        f"FROM unnest({', '.join(types)}) AS v({', '.join(names)}) "
        f"WHERE w.{names[0]} = v.{names[0]} {condition} RETURNING w.{names[0]}"
    )
    return {row[0] for row in fetch(sql, [*arrays, *params])}


def primary_key(model: type[Model]) -> Any:
    """Return the model's primary key field."""
    return model._meta.pk


def field_of(model: type[Model], name: str) -> Any:
    """Return one of the model's own fields."""
    return model._meta.get_field(name)


def array_type(field: Any) -> str:
    """Return the PostgreSQL array type whose elements the column takes."""
    kind = field.get_internal_type()
    if kind in ("IntegerField", "BigAutoField"):
        return "bigint[]"
    return {"DateTimeField": "timestamptz[]", "BooleanField": "boolean[]"}.get(kind, "text[]")


def update_by_cases(model: type[Model], changes: Changes) -> set[str]:
    """One UPDATE per chunk: what all rows share is set as it is, what differs is chosen by key."""
    for some in chunked(list(changes.items()), CASES):
        update_chunk(model, dict(some))
    return set(changes)


def update_chunk(model: type[Model], changes: Changes) -> None:
    """Write one chunk."""
    database = connection()
    quote = database.ops.quote_name
    key = quote(primary_key(model).column)
    assignments, params = [], []
    for name in next(iter(changes.values())):
        field = field_of(model, name)
        values = {id: field.get_db_prep_save(change[name], database) for id, change in changes.items()}
        if len(set(values.values())) == 1:
            assignments.append(f"{quote(field.column)} = %s")
            params.append(next(iter(values.values())))
        else:
            assignments.append(f"{quote(field.column)} = CASE {key} {'WHEN %s THEN %s ' * len(values)}END")
            params += [part for pair in values.items() for part in pair]
    where = f"{key} IN ({', '.join(['%s'] * len(changes))})"
    with database.cursor() as cursor:
        cursor.execute(
            f"UPDATE {quote(model._meta.db_table)} SET {', '.join(assignments)} WHERE {where}",
            [*params, *changes],
        )
