"""Inserting works."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import repeat
from typing import Any

from django.db import IntegrityError

from django_ayework.models import Work
from django_ayework.store.bulk import array_type, as_arrays, field_of
from django_ayework.store.columns import INSERTED, MOMENTS, ByColumn, by_column, into, values_of
from django_ayework.store.copying import can_copy, copy_works
from django_ayework.store.database import CHUNK, atomic, connection, is_postgresql
from django_ayework.store.prepared import run_prepared
from django_ayework.store.rows import WorkRow, statuses_of

#: From how many works on COPY is tried. It is quicker for any two, but begins again when an id is taken.
MANY = 10

#: How a value that means nothing is written into a statement.
LITERALS = {"": "''", 0: "0"}


class IdsTaken(Exception):
    """Some of the ids exist already; rolls the savepoint back."""


def insert_works(works: Sequence[WorkRow]) -> set[str]:
    """Insert works of distinct ids in the caller's transaction; return the ids that existed already.

    A single one is a single statement. An existing id never breaks the caller's transaction.
    """
    if len(works) == 1:
        return set() if insert_one(works[0]) else {works[0].id}
    if len(works) >= MANY and is_postgresql() and can_copy() and copied(works):
        return set()
    try:
        with atomic():
            for start in range(0, len(works), CHUNK):
                some = works[start : start + CHUNK]
                if insert_some(some) < len(some):
                    raise IdsTaken
    except IdsTaken:
        taken = set(statuses_of(work.id for work in works))
        fresh = [work for work in works if work.id not in taken]
        return taken | insert_works(fresh) if fresh else taken
    return set()


def copied(works: Sequence[WorkRow]) -> bool:
    """Insert works by COPY; False, with nothing inserted, when an id is taken."""
    with suppress(IntegrityError), atomic():
        copy_works(works)
        return True
    return False


def insert_one(work: WorkRow) -> int:
    """Insert a work, by a statement that is made once for works with the same columns filled."""
    values = values_of(work)
    database = connection()
    adapt = database.ops.adapt_datetimefield_value
    params = [adapt(value) if isinstance(value, datetime) else value for value in values if value]
    sql = statement(database.vendor, tuple([True if value else value for value in values]))
    return insert_unless_taken(database, sql, params)


@functools.lru_cache(maxsize=256)
def statement(vendor: str, filled: tuple[object, ...]) -> str:
    """Return an INSERT: ``filled`` has True for each column to be given, else its empty value."""
    given = {name: value for name, value in zip(INSERTED, filled, strict=True) if value is not None}
    values = ["%s" if value is True else LITERALS[value] for value in given.values()]
    return f"INSERT INTO {into(list(given))} VALUES ({', '.join(values)})"


def insert_some(works: Sequence[WorkRow]) -> int:
    """Insert works by one statement, the quickest of the database; return how many rows it made."""
    return QUICKEST.get(connection().vendor, insert_rows)(works)


def insert_rows(works: Sequence[WorkRow]) -> int:
    """An INSERT that any database runs, prepared once and run for each row."""
    columns = adapted(by_column(works))
    marks = ", ".join(["%s"] * len(columns.names))
    sql = f"INSERT INTO {into(columns.names)} VALUES ({marks})"
    rows = zip(*columns.varying.values(), *map(repeat, columns.shared.values()), strict=False)
    return insert_unless_taken(connection(), sql, list(rows), many=True)


def insert_arrays(works: Sequence[WorkRow]) -> int:
    """One INSERT from arrays: PostgreSQL reads them quicker than a long list of rows."""
    columns = by_column(works)
    source, arrays = as_arrays([field_of(Work, name) for name in columns.varying], columns.varying)
    varying = [f"v.v{number}" for number in range(len(columns.varying))]
    shared = [f"%s::{array_type(field_of(Work, name)).removesuffix('[]')}" for name in columns.shared]
    sql = f"INSERT INTO {into(columns.names)} SELECT {', '.join([*varying, *shared])} FROM {source}"
    return insert_unless_taken(connection(), sql, [*columns.shared.values(), *arrays])


def insert_json(works: Sequence[WorkRow]) -> int:
    """One INSERT from one JSON text: MySQL and MariaDB read it twice as quickly as a long list of rows."""
    columns = adapted(by_column(works))
    marks = ["%s"] * len(columns.shared)
    parts = ", ".join(
        f"{name} {json_type(field_of(Work, name))} PATH '$[{place}]'"
        for place, name in enumerate(columns.varying)
    )
    sql = (
        f"INSERT INTO {into(columns.names)} "
        f"SELECT {', '.join([*map('v.{}'.format, columns.varying), *marks])} "
        f"FROM JSON_TABLE(%s, '$[*]' COLUMNS({parts})) AS v"
    )
    rows = list(zip(*columns.varying.values(), strict=True))
    text = json.dumps(rows, ensure_ascii=False, default=str)
    return insert_unless_taken(connection(), sql, [*columns.shared.values(), text])


def json_type(field: Any) -> str:
    """Return the type as which JSON is read: wide, for what is too long would become NULL unnoticed."""
    kind = field.get_internal_type()
    return {"IntegerField": "BIGINT", "DateTimeField": "DATETIME(6)"}.get(
        kind, "LONGTEXT CHARACTER SET utf8mb4"
    )


def adapted(columns: ByColumn) -> ByColumn:
    """Return the columns with moments as the database driver takes them."""
    adapt = connection().ops.adapt_datetimefield_value
    shared = {name: adapt(value) if name in MOMENTS else value for name, value in columns.shared.items()}
    moments = {
        name: tuple(None if value is None else adapt(value) for value in values)
        for name, values in columns.varying.items()
        if name in MOMENTS
    }
    return ByColumn(shared, columns.varying | moments)


def insert_unless_taken(database: Any, sql: str, params: Sequence[Any], many: bool = False) -> int:
    """Run an INSERT that passes over rows whose id is taken; return how many it made.

    MySQL makes none then: it undoes the statement, not the transaction.
    """
    if database.vendor == "mysql":
        with suppress(IntegrityError):
            return executed(database, sql, params, many)
        return 0
    return executed(database, f"{sql} ON CONFLICT (id) DO NOTHING", params, many)


def executed(database: Any, sql: str, params: Sequence[Any], many: bool) -> int:
    """Run a statement, or the same one for many rows; return how many rows were made."""
    if not many and (prepared := run_prepared(database, sql, params, needs_plan=False)) is not None:
        return int(prepared.rowcount)
    with database.cursor() as cursor:
        cursor.executemany(sql, params) if many else cursor.execute(sql, params)
        return int(cursor.rowcount)


#: How some works are inserted by one statement, where there is something quicker than insert_rows().
QUICKEST: Mapping[str, Callable[[Sequence[WorkRow]], int]] = {
    "postgresql": insert_arrays,
    "mysql": insert_json,
}
