"""Writing many rows at once: joined with the values on PostgreSQL and SQLite, chosen by CASE elsewhere."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Model

from django_ayework.store.database import connection, fetch, has_returning, is_postgresql
from django_ayework.store.portions import portions
from django_ayework.store.sources import source_of

Changes = Mapping[str, Mapping[str, Any]]

#: Rows in one CASE: each row is compared with every key, so more rows would cost more than round trips save.
CASES = 100


@dataclass(frozen=True, slots=True)
class Update:
    """New values for the rows of these keys, column by column.

    ``varying`` has one value per key, in their order; ``shared`` is the same for all.
    """

    keys: Sequence[str]
    varying: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    shared: Mapping[str, Any] = field(default_factory=dict)


def update_of(changes: Changes) -> Update:
    """Return changes by key as an update by column; all name the same columns."""
    values = list(changes.values())
    varying: dict[str, Sequence[Any]] = {}
    shared: dict[str, Any] = {}
    for name, first in values[0].items():
        column = [change[name] for change in values]
        if all(value == first for value in column):
            shared[name] = first
        else:
            varying[name] = column
    return Update(list(changes), varying, shared)


def update_rows(model: type[Model], changes: Changes) -> None:
    """Set columns of rows by primary key; all changes name the same columns. The caller holds the locks."""
    if changes:
        update = update_joined if can_join() else update_by_cases
        update(model, update_of(changes))


def quoted(name: str) -> str:
    """Return the name of a table or column as the database writes it."""
    return connection().ops.quote_name(name)


def columns_of(model: type[Model], names: Sequence[str]) -> str:
    """Return the columns of fields as a list in SQL."""
    return ", ".join(quoted(field_of(model, name).column) for name in names)


def can_join() -> bool:
    """Tell whether an UPDATE can be joined with values and return what it has moved."""
    return is_postgresql() or has_returning()


def update_joined(
    model: type[Model],
    update: Update,
    fence: Mapping[str, Sequence[Any]] | None = None,
    condition: str = "",
    params: Sequence[Any] = (),
) -> set[str]:
    """One UPDATE joined with the values; the planner reads the rows through the primary key.

    ``fence`` has values, one per key, that columns must have now; ``condition``, with its ``params``, is what
    a row (``w``) must meet besides. Returns the keys that moved.

    It is planned each time: a plan from when the table was small goes through the whole index, for ever.
    """
    if len(update.keys) == 1:
        return update_one(model, update, fence or {}, condition, params)
    key = primary_key(model)
    given = {key.name: update.keys, **update.varying, **(fence or {})}
    place = {name: f"v.v{number}" for number, name in enumerate(given)}
    fields = {name: field_of(model, name) for name in (*given, *update.shared)}
    sets = [f'"{fields[name].column}" = {place[name]}' for name in update.varying]
    sets += [f'"{fields[name].column}" = %s' for name in update.shared]
    met = [f'w."{fields[name].column}" = {place[name]}' for name in (key.name, *(fence or {}))]
    source = source_of([fields[name] for name in given], list(given.values()))
    sql = (
        f'UPDATE "{model._meta.db_table}" AS w SET {", ".join(sets)} FROM {source.sql} '
        f'WHERE {" AND ".join(met)} {condition} RETURNING "{key.column}"'
    )
    shared = [fields[name].get_db_prep_save(value, connection()) for name, value in update.shared.items()]
    return {row[0] for row in fetch(sql, [*shared, *source.params, *params])}


def update_one(
    model: type[Model],
    update: Update,
    fence: Mapping[str, Sequence[Any]],
    condition: str,
    params: Sequence[Any],
) -> set[str]:
    """Update one row as update_joined() does, with nothing to join: on all databases, by one plan."""
    given = {**{name: values[0] for name, values in update.varying.items()}, **update.shared}
    required = {name: values[0] for name, values in fence.items()}
    database = connection()
    sql, fields = statement_of_one(database.vendor, model, tuple(given), tuple(required), condition)
    pairs = zip(fields, (*given.values(), update.keys[0], *required.values()), strict=True)
    values = [
        value if value is None or type(value) is str else field.get_db_prep_save(value, database)
        for field, value in pairs
    ]
    if can_join():
        moved = f"{sql} RETURNING {quoted(primary_key(model).column)}"
        return {row[0] for row in fetch(moved, [*values, *params], often=True)}
    with database.cursor() as cursor:
        cursor.execute(sql, [*values, *params])
        return set(update.keys) if cursor.rowcount else set()


@functools.lru_cache(maxsize=256)
def statement_of_one(
    vendor: str, model: type[Model], given: tuple[str, ...], required: tuple[str, ...], condition: str
) -> tuple[str, tuple[Any, ...]]:
    """Return an UPDATE of one row, and the fields of its parameters: those given, the key, those required."""
    fields = [field_of(model, name) for name in (*given, primary_key(model).name, *required)]
    columns = [quoted(field.column) for field in fields]
    sets = [f"{column} = %s" for column in columns[: len(given)]]
    met = [f"w.{column} = %s" for column in columns[len(given) :]]
    table = quoted(model._meta.db_table)
    return f"UPDATE {table} AS w SET {', '.join(sets)} WHERE {' AND '.join(met)} {condition}", tuple(fields)


def primary_key(model: type[Model]) -> Any:
    """Return the model's primary key field."""
    return model._meta.pk


def field_of(model: type[Model], name: str) -> Any:
    """Return one of the model's own fields."""
    return model._meta.get_field(name)


def update_by_cases(model: type[Model], update: Update) -> set[str]:
    """One UPDATE per chunk: what all rows share is set as it is, what differs is chosen by key."""
    for part in portions(sizes_of(update), most=CASES):
        update_chunk(model, part_of(update, range(part.start, part.stop)))
    return set(update.keys)


def part_of(update: Update, places: Sequence[int]) -> Update:
    """Return the part of an update that is about the keys at these places."""
    varying = {name: [column[place] for place in places] for name, column in update.varying.items()}
    return Update([update.keys[place] for place in places], varying, update.shared)


def sizes_of(update: Update) -> list[int]:
    """Return how many characters the values of each key have."""
    texts = [column for column in update.varying.values() if any(isinstance(value, str) for value in column)]
    return [
        sum(len(column[place]) for column in texts if isinstance(column[place], str))
        for place in range(len(update.keys))
    ]


def update_chunk(model: type[Model], update: Update) -> None:
    """Write one chunk."""
    database = connection()
    key = quoted(primary_key(model).column)
    assignments, params = [], []
    for name, value in update.shared.items():
        column = field_of(model, name)
        assignments.append(f"{quoted(column.column)} = %s")
        params.append(column.get_db_prep_save(value, database))
    for name, values in update.varying.items():
        column = field_of(model, name)
        assignments.append(f"{quoted(column.column)} = CASE {key} {'WHEN %s THEN %s ' * len(values)}END")
        for id, value in zip(update.keys, values, strict=True):
            params += (id, column.get_db_prep_save(value, database))
    where = f"{key} IN ({', '.join(['%s'] * len(update.keys))})"
    with database.cursor() as cursor:
        cursor.execute(
            f"UPDATE {quoted(model._meta.db_table)} SET {', '.join(assignments)} WHERE {where}",
            [*params, *update.keys],
        )
