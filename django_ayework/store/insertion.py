"""New rows by column: what all of them share is said once, what differs is read from a few parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from django.db.models import Model

from django_ayework.store.bulk import columns_of, field_of, quoted
from django_ayework.store.database import chunked, connection, is_postgresql
from django_ayework.store.sources import adapted_column, array_type, source_of

#: Rows of one statement.
AT_ONCE = 2000


@dataclass(frozen=True, slots=True)
class ByColumn:
    """Rows by column: ``shared`` has one value for all, ``varying``, of which there is some, one for each."""

    shared: dict[str, Any]
    varying: dict[str, tuple[Any, ...]]

    @property
    def names(self) -> list[str]:
        """The columns, those that vary first."""
        return [*self.varying, *self.shared]


def insert_many(model: type[Model], names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert rows, each with the values of these columns as they are stored, past the model's instances.

    Those cost more than the rest for works that wait for thousands of others.
    """
    for some in chunked(rows, AT_ONCE):
        sql, params, many = insertion(model, by_columns(names, some))
        with connection().cursor() as cursor:
            cursor.executemany(sql, params) if many else cursor.execute(sql, params)


def by_columns(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> ByColumn:
    """Return rows, of which there must be some, by column."""
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    shared = {name: column[0] for name, column in columns.items() if column.count(column[0]) == len(column)}
    varying = {name: column for name, column in columns.items() if name not in shared}
    return ByColumn(shared, varying) if varying else ByColumn({}, columns)


def insertion(model: type[Model], columns: ByColumn) -> tuple[str, list[Any], bool]:
    """Return an INSERT of rows, its parameters, and whether those are a list for each row."""
    fields = {name: field_of(model, name) for name in columns.names}
    source = source_of([fields[name] for name in columns.varying], list(columns.varying.values()))
    if source.loses_text:
        return insertion_row_by_row(model, columns)
    values = [f"v.v{number}" for number in range(len(columns.varying))]
    values += [mark_of(fields[name]) for name in columns.shared]
    # WHERE tells SQLite that an ON CONFLICT behind it is no condition of a join.
    sql = f"INSERT INTO {into(model, columns.names)} SELECT {', '.join(values)} FROM {source.sql} WHERE true"
    return sql, [*adapted_shared(model, columns), *source.params], False


def insertion_row_by_row(model: type[Model], columns: ByColumn) -> tuple[str, list[Any], bool]:
    """An INSERT that any database runs, for each row."""
    marks = ", ".join(["%s"] * len(columns.names))
    sql = f"INSERT INTO {into(model, columns.names)} VALUES ({marks})"
    given = [adapted_column(field_of(model, name), column) for name, column in columns.varying.items()]
    return sql, list(zip(*given, *map(repeat, adapted_shared(model, columns)), strict=False)), True


def adapted_shared(model: type[Model], columns: ByColumn) -> list[Any]:
    """Return the values that all rows share, as the database takes them."""
    return [adapted_column(field_of(model, name), [value])[0] for name, value in columns.shared.items()]


def into(model: type[Model], names: Sequence[str]) -> str:
    """Return a table and columns of it, as INSERT and COPY want them."""
    return f"{quoted(model._meta.db_table)} ({columns_of(model, names)})"


def mark_of(field: Any) -> str:
    """Return the placeholder of a value that all rows share; PostgreSQL has to be told its type."""
    return f"%s::{array_type(field).removesuffix('[]')}" if is_postgresql() else "%s"
