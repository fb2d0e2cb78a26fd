"""Updating many rows, each with values of its own, and reading many, by as few statements as possible."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model

from django_ayework.store.database import CHUNK, connection, dialect, fetch
from django_ayework.store.dialects import Dialect

#: Rows in one statement where it takes whole columns as arrays.
SET = 4000
#: Characters of the values in one statement, unless one row has more. MariaDB takes packets of 16 MiB by
#: default, and a character has up to four bytes; a larger one ends the session.
LARGEST = 1_000_000
#: Kinds of fields whose values every database takes as they are: to ask Django for each takes its time.
TAKEN_AS_THEY_ARE = frozenset({"CharField", "TextField", "IntegerField", "BigAutoField"})

UPDATE_ONE = "UPDATE {table} AS w SET {sets} WHERE {met} AND {condition}"

Changes = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Update:
    """New values for the rows of these keys, column by column.

    ``varying`` has one value per key, in their order; ``shared`` is the same for all. ``required`` has values
    that columns of a row must have now, one per key.
    """

    keys: Sequence[str]
    varying: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    shared: Mapping[str, Any] = field(default_factory=dict)
    required: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def part(self, places: Collection[int]) -> Update:
        """Return the part that is about the keys at these places."""

        def cut(columns: Mapping[str, Sequence[Any]]) -> Mapping[str, Sequence[Any]]:
            return {name: [column[place] for place in places] for name, column in columns.items()}

        keys = [self.keys[place] for place in places]
        return Update(keys, cut(self.varying), self.shared, cut(self.required))


def update_of(changes: Changes) -> Update:
    """Return changes by key as an update by column; all name the same columns."""
    values = list(changes.values())
    return update_by_column(list(changes), {name: [change[name] for change in values] for name in values[0]})


def update_by_column(
    keys: Sequence[str], columns: Mapping[str, Sequence[Any]], shared: Mapping[str, Any] | None = None
) -> Update:
    """Return new values, one per key in each column, as an update; what all have in common is shared, too."""
    alike = {name: column[0] for name, column in columns.items() if column.count(column[0]) == len(column)}
    varying = {name: column for name, column in columns.items() if name not in alike}
    return Update(keys, varying, {**alike, **(shared or {})})


def update_rows(model: type[Model], changes: Changes) -> None:
    """Set columns of rows by primary key; all changes name the same columns. The caller holds the locks."""
    if changes:
        write(model, update_of(changes))


def write(model: type[Model], update: Update) -> None:
    """Carry out an update, which may be any number of statements. The caller holds the locks."""
    database = dialect()
    for part in parts_of(update, database):
        move(model, part, database)


def parts_of(update: Update, database: Dialect) -> list[Update]:
    """Return an update in parts that are small enough for one statement each."""
    values = zip(update.keys, *update.varying.values(), strict=True)
    sizes = [sum(len(value) for value in row if isinstance(value, str)) for row in values]
    parts = portions(sizes, most=SET if database.has_arrays else CHUNK)
    return [update] if len(parts) == 1 else [update.part(range(part.start, part.stop)) for part in parts]


def portions(sizes: Sequence[int], most: int) -> list[slice]:
    """Return where to cut rows of these sizes, in characters, into portions of at most so many rows.

    >>> [(part.start, part.stop) for part in portions([1, 2, LARGEST, 3, 4, 5], most=2)]
    [(0, 2), (2, 3), (3, 5), (5, 6)]
    """
    found: list[slice] = []
    start, size = 0, 0
    for place, own in enumerate(sizes):
        if place > start and (place - start == most or size + own > LARGEST):
            found.append(slice(start, place))
            start, size = place, 0
        size += own
    return [*found, slice(start, len(sizes))] if sizes else found


def move(
    model: type[Model],
    update: Update,
    database: Dialect,
    condition: str = "TRUE",
    condition_params: Sequence[Any] = (),
) -> set[str] | None:
    """Carry out a part of an update whose rows are found by primary key; return the keys that moved.

    ``condition`` is a further condition of a row ``w`` in SQL. None: some have moved, and the database does
    not tell which. A single row is updated by a plan that is kept. A statement over several is planned each
    time: a plan from when the table was small goes through the whole index, for ever. PostgreSQL looks up the
    row of each key, in the order of the keys, and so locks rows in that order.
    """
    is_joined = len(update.keys) > 1
    names = (tuple(update.varying), tuple(update.shared), tuple(update.required))
    sql = update_statement(database, model, *names, condition, is_joined)
    session = connection()
    shared = adapted_values(session, model, update.shared)
    varying, required = (adapted(session, model, each) for each in (update.varying, update.required))
    if is_joined:
        source = database.source_params([update.keys, *varying, *required])
        values = [*source, *shared] if database.source_first else [*shared, *source]
    else:
        values = [*first_of(varying), *shared, *update.keys, *first_of(required)]
    params = [*values, *condition_params]
    if database.has_arrays:
        return {row[0] for row in fetch(sql, params, often=not is_joined)}
    with session.cursor() as cursor:
        cursor.execute(sql, params)
        if cursor.rowcount == len(update.keys):
            return set(update.keys)
        return None if cursor.rowcount else set()


def first_of(columns: Iterable[Sequence[Any]]) -> list[Any]:
    """Return the first value of each column."""
    return [column[0] for column in columns]


@lru_cache(maxsize=256)
def update_statement(
    database: Dialect,
    model: type[Model],
    varying: tuple[str, ...],
    shared: tuple[str, ...],
    required: tuple[str, ...],
    condition: str,
    is_joined: bool,
) -> str:
    """Return an UPDATE of one row, or of all rows that are joined with their values."""
    key = key_of(model)
    given = (key, *varying, *required)
    place = {name: f"v.v{number}" if is_joined else "%s" for number, name in enumerate(given)}
    column = database.columns(model, (*given, *shared))
    met = database.met if is_joined else Dialect.met
    sql = (database.update_joined if is_joined else UPDATE_ONE).format(
        table=database.quoted(model._meta.db_table),
        source=is_joined and database.source([model._meta.get_field(name) for name in given]),
        sets=", ".join(f"{column[name]} = {place.get(name, '%s')}" for name in (*varying, *shared)),
        met=" AND ".join(met.format(column=column[name], value=place[name]) for name in (key, *required)),
        condition=condition,
    )
    return f"{sql} RETURNING {column[key]}" if database.has_arrays else sql


def adapted(
    session: BaseDatabaseWrapper, model: type[Model], columns: Mapping[str, Sequence[Any]]
) -> list[Sequence[Any]]:
    """Return columns of values as the database takes them; texts and numbers are taken as they are."""
    stored: list[Sequence[Any]] = []
    for name, column in columns.items():
        field: Any = model._meta.get_field(name)
        is_taken = field.get_internal_type() in TAKEN_AS_THEY_ARE
        stored.append(column if is_taken else [field.get_db_prep_save(value, session) for value in column])
    return stored


def adapted_values(session: BaseDatabaseWrapper, model: type[Model], values: Mapping[str, Any]) -> list[Any]:
    """Return one value for each column as the database takes it."""
    return [value for [value] in adapted(session, model, {name: [value] for name, value in values.items()})]


def key_of(model: type[Model]) -> str:
    """Return the name of the model's primary key."""
    key: Any = model._meta.pk
    return str(key.name)


# Reading many rows by the values of a column.


def rows_with(
    model: type[Model],
    column: str,
    ids: Collection[str],
    columns: Sequence[str],
    limit: int | None = None,
    often: bool = False,
) -> list[tuple[Any, ...]]:
    """Read columns of the rows that have one of these ids in a column: all of them, or up to so many.

    The ids are one parameter, however many they are.
    """
    database = dialect()
    if not ids:
        return []
    join = database.join_by_id.format(table=model._meta.db_table, column=column)
    source = database.source([model._meta.get_field(column)])
    sql = f"SELECT {', '.join(f'w.{name}' for name in columns)} FROM {source} {join}"
    params = database.source_params([list(ids)])
    if limit is not None:
        sql, params = f"{sql} LIMIT %s", [*params, limit]
    return fetch(sql, params, often)
