"""Bulk writes: INSERT and UPDATE of many rows in one statement."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, repeat
from typing import Any, NamedTuple

from django.db.models import Model

from django_ayework.store.database import CHUNK, connection, fetch, has_returning, is_postgresql
from django_ayework.store.parameters import Source, portions, source_of

# --- bulk ---
# Writing many rows at once: one UPDATE, joined with the values.

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


class Condition(NamedTuple):
    """What a row ``w`` must meet besides, in SQL, and its parameters."""

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
    if tells_moved() or len(update.keys) == 1:
        update_joined(model, update)
    else:
        for part in parts_of(update):
            count_moved(model, part)


def parts_of(update: Update) -> Iterator[Update]:
    """Return an update in parts that are small enough for one statement each."""
    for part in portions(sizes_of(update), most=CHUNK):
        yield part_of(update, range(part.start, part.stop))


def quoted(name: str) -> str:
    """Return the name of a table or column as the database writes it."""
    return connection().ops.quote_name(name)


def tells_moved() -> bool:
    """Tell whether an UPDATE returns which rows it has moved, and not only how many."""
    return is_postgresql() or has_returning()


def update_joined(model: type[Model], update: Update, condition: Condition = UNCONDITIONAL) -> set[str]:
    """One UPDATE joined with the values, whose rows are found by primary key; return the keys that moved.

    It is planned each time: a plan from when the table was small goes through the whole index, for ever.
    PostgreSQL looks up the row of each key, in the order of the keys, and so locks rows in that order.
    """
    if len(update.keys) == 1:
        return update_one(model, update, condition)
    key = quoted(primary_key(model).column)
    join = join_of(model, update)
    sql = (
        f"UPDATE {quoted(model._meta.db_table)} AS w SET {join.sets} FROM {join.source.sql} "
        f"WHERE {join.met} AND {of_a_pair(condition.sql)} RETURNING {key}"
    )
    return {row[0] for row in fetch(sql, [*join.shared, *join.source.params, *condition.params])}


def count_moved(model: type[Model], update: Update, condition: Condition = UNCONDITIONAL) -> int:
    """Do as update_joined() where no UPDATE tells which rows it has moved; return how many did."""
    count = count_joined if connection().vendor == "mysql" else count_one_by_one
    return count(model, update, condition)


def count_joined(model: type[Model], update: Update, condition: Condition) -> int:
    """One UPDATE; the values come first, in their order, and each row is looked up.

    Read the other way round, or chosen by CASE, each row would be compared with every key. Without its index
    a small table is scanned, and the statement waits for rows that it is not about.
    """
    join = join_of(model, update)
    sql = (
        f"UPDATE {join.source.sql} STRAIGHT_JOIN {quoted(model._meta.db_table)} AS w FORCE INDEX (PRIMARY) "
        f"SET {join.sets} WHERE {join.met} AND {condition.sql}"
    )
    with connection().cursor() as cursor:
        cursor.execute(sql, [*join.source.params, *join.shared, *condition.params])
        return int(cursor.rowcount)


def count_one_by_one(model: type[Model], update: Update, condition: Condition) -> int:
    """An UPDATE that any database runs, for each row."""
    given, required = (*update.varying, *update.shared), tuple(update.required)
    sql, fields = statement_of_one(connection().vendor, model, given, required, condition.sql)
    columns = [
        *update.varying.values(),
        *map(repeat, update.shared.values()),
        update.keys,
        *update.required.values(),
    ]
    adapted = [
        [field.get_db_prep_save(value, connection()) for value in islice(column, len(update.keys))]
        for field, column in zip(fields, columns, strict=True)
    ]
    with connection().cursor() as cursor:
        cursor.executemany(sql, [(*row, *condition.params) for row in zip(*adapted, strict=True)])
        return int(cursor.rowcount)


class Join(NamedTuple):
    """The parts of an UPDATE of rows ``w`` that is joined with values ``v``."""

    sets: str
    #: The parameters of ``sets``.
    shared: list[Any]
    source: Source
    met: str


def join_of(model: type[Model], update: Update) -> Join:
    """Return the parts; a row is met by its key and by what columns must have now."""
    key = primary_key(model)
    given = {key.name: update.keys, **update.varying, **update.required}
    place = {name: f"v.v{number}" for number, name in enumerate(given)}
    fields = {name: field_of(model, name) for name in (*given, *update.shared)}
    column = {name: quoted(field.column) for name, field in fields.items()}
    sets = [f"{column[name]} = {place[name]}" for name in update.varying]
    sets += [f"{column[name]} = %s" for name in update.shared]
    met = [equal(f"w.{column[name]}", place[name]) for name in (key.name, *update.required)]
    shared = [fields[name].get_db_prep_save(value, connection()) for name, value in update.shared.items()]
    source = source_of([fields[name] for name in given], list(given.values()))
    return Join(", ".join(sets), shared, source, " AND ".join(met))


def update_one(model: type[Model], update: Update, condition: Condition) -> set[str]:
    """Update one row as update_joined() does, with nothing to join: on all databases, by one plan."""
    given = {**{name: values[0] for name, values in update.varying.items()}, **update.shared}
    required = {name: values[0] for name, values in update.required.items()}
    database = connection()
    sql, fields = statement_of_one(database.vendor, model, tuple(given), tuple(required), condition.sql)
    pairs = zip(fields, (*given.values(), update.keys[0], *required.values()), strict=True)
    values = [
        value if value is None or type(value) is str else field.get_db_prep_save(value, database)
        for field, value in pairs
    ]
    if tells_moved():
        moved = f"{sql} RETURNING {quoted(primary_key(model).column)}"
        return {row[0] for row in fetch(moved, [*values, *condition.params], often=True)}
    with database.cursor() as cursor:
        cursor.execute(sql, [*values, *condition.params])
        return set(update.keys) if cursor.rowcount else set()


def equal(column: str, value: str) -> str:
    """Return that a row's column is the value that is joined with it.

    PostgreSQL can neither hash nor merge by such a comparison, so it starts with the values. Otherwise it may
    start with an index of running works, and lock rows in the order of that.
    """
    return f"{column} = ANY(ARRAY[{value}])" if is_postgresql() else f"{column} = {value}"


def of_a_pair(condition: str) -> str:
    """Return a condition on rows as one on rows with their values, by which alone no row is looked for."""
    return f"(v.v0 IS NULL OR ({condition}))" if is_postgresql() else condition


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
    return f"UPDATE {table} AS w SET {', '.join(sets)} WHERE {' AND '.join(met)} AND {condition}", tuple(
        fields
    )


def primary_key(model: type[Model]) -> Any:
    """Return the model's primary key field."""
    return model._meta.pk


def field_of(model: type[Model], name: str) -> Any:
    """Return one of the model's own fields."""
    return model._meta.get_field(name)


def part_of(update: Update, places: Sequence[int]) -> Update:
    """Return the part of an update that is about the keys at these places."""

    def cut(columns: Mapping[str, Sequence[Any]]) -> Mapping[str, Sequence[Any]]:
        return {name: [column[place] for place in places] for name, column in columns.items()}

    keys = [update.keys[place] for place in places]
    return Update(keys, cut(update.varying), update.shared, cut(update.required))


def sizes_of(update: Update) -> list[int]:
    """Return how many characters the values of each key have."""
    texts = [column for column in update.varying.values() if any(isinstance(value, str) for value in column)]
    return [
        sum(len(column[place]) for column in texts if isinstance(column[place], str))
        for place in range(len(update.keys))
    ]
