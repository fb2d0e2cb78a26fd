"""Updating many rows, each with values of its own, by as few statements as the database needs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

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


class Condition(NamedTuple):
    """The further condition of a row ``w`` in SQL, and its parameters."""

    sql: str = "TRUE"
    params: Sequence[Any] = ()


UNCONDITIONAL = Condition()


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
    for part in parts_of(update):
        move(model, part)


def parts_of(update: Update) -> Iterator[Update]:
    """Return an update in parts that are small enough for one statement each."""
    values = zip(update.keys, *update.varying.values(), strict=True)
    sizes = [sum(len(value) for value in row if isinstance(value, str)) for row in values]
    for part in portions(sizes, most=SET if dialect().has_arrays else CHUNK):
        yield update if part == slice(0, len(sizes)) else update.part(range(part.start, part.stop))


def portions(sizes: Sequence[int], most: int) -> Iterator[slice]:
    """Return where to cut rows of these sizes, in characters, into portions of at most so many rows.

    >>> [(part.start, part.stop) for part in portions([1, 2, LARGEST, 3, 4, 5], most=2)]
    [(0, 2), (2, 3), (3, 5), (5, 6)]
    """
    start, size = 0, 0
    for place, own in enumerate(sizes):
        if place > start and (place - start == most or size + own > LARGEST):
            yield slice(start, place)
            start, size = place, 0
        size += own
    if start < len(sizes):
        yield slice(start, len(sizes))


def move(model: type[Model], update: Update, condition: Condition = UNCONDITIONAL) -> set[str] | None:
    """Carry out a part of an update whose rows are found by primary key; return the keys that moved.

    None: some have moved, and the database does not tell which. A single row is updated by a plan that is
    kept. A statement over several is planned each time: a plan from when the table was small goes through the
    whole index, for ever. PostgreSQL looks up the row of each key, in the order of the keys, and so locks
    rows in that order.
    """
    database, one = dialect(), len(update.keys) == 1
    is_joined = database.reads_rows and not one
    names = (tuple(update.varying), tuple(update.shared), tuple(update.required))
    sql = update_statement(database, model, *names, condition.sql, is_joined)
    params = (joined_params if is_joined else params_by_row)(model, update, condition)
    if database.has_arrays:
        return {row[0] for row in fetch(f"{sql} RETURNING {key_of(model).column}", params[0], often=one)}
    with connection().cursor() as cursor:
        cursor.execute(sql, params[0]) if len(params) == 1 else cursor.executemany(sql, params)
        if cursor.rowcount == len(update.keys):
            return set(update.keys)
        return None if cursor.rowcount else set()


@lru_cache(maxsize=256)
def update_statement(
    dialect: Dialect,
    model: type[Model],
    varying: tuple[str, ...],
    shared: tuple[str, ...],
    required: tuple[str, ...],
    condition: str,
    is_joined: bool,
) -> str:
    """Return an UPDATE of one row, or of all rows that are joined with their values."""
    key = key_of(model).name
    given = (key, *varying, *required)
    place = {name: f"v.v{number}" if is_joined else "%s" for number, name in enumerate(given)}
    column = {name: dialect.quoted(field_of(model, name).column) for name in (*given, *shared)}
    met = dialect.met if is_joined else Dialect.met
    return (dialect.update_joined if is_joined else UPDATE_ONE).format(
        table=dialect.quoted(model._meta.db_table),
        source=is_joined and dialect.source([field_of(model, name) for name in given]),
        sets=", ".join(f"{column[name]} = {place.get(name, '%s')}" for name in (*varying, *shared)),
        met=" AND ".join(met.format(column=column[name], value=place[name]) for name in (key, *required)),
        condition=condition,
    )


def joined_params(model: type[Model], update: Update, condition: Condition) -> list[Sequence[Any]]:
    """Return the parameters of an UPDATE that is joined with the values."""
    columns = {key_of(model).name: update.keys, **update.varying, **update.required}
    source = dialect().source_params([adapted(model, name, column) for name, column in columns.items()])
    shared = adapted_values(model, update.shared)
    values = [*source, *shared] if dialect().source_first else [*shared, *source]
    return [[*values, *condition.params]]


def params_by_row(model: type[Model], update: Update, condition: Condition) -> list[Sequence[Any]]:
    """Return the parameters of an UPDATE of one row, for each row."""
    shared = adapted_values(model, update.shared)
    varying = [adapted(model, name, column) for name, column in update.varying.items()]
    required = [adapted(model, name, column) for name, column in update.required.items()]
    rows = zip(zip(update.keys, *required, strict=True), *varying, strict=True)
    return [[*values, *shared, *met, *condition.params] for met, *values in rows]


def adapted(model: type[Model], name: str, column: Sequence[Any]) -> Sequence[Any]:
    """Return values of a column as the database takes them; texts and numbers are taken as they are."""
    field = field_of(model, name)
    if field.get_internal_type() in TAKEN_AS_THEY_ARE:
        return column
    return [field.get_db_prep_save(value, connection()) for value in column]


def adapted_values(model: type[Model], values: Mapping[str, Any]) -> list[Any]:
    """Return a value for each column as the database takes it."""
    return [adapted(model, name, [value])[0] for name, value in values.items()]


def key_of(model: type[Model]) -> Any:
    """Return the model's primary key field."""
    return model._meta.pk


def field_of(model: type[Model], name: str) -> Any:
    """Return one of the model's own fields."""
    return model._meta.get_field(name)
