"""Inserting works."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from django.db import IntegrityError

from django_ayework.models import Work
from django_ayework.store.columns import INSERTED, by_column, values_of
from django_ayework.store.copying import can_copy, copy_works
from django_ayework.store.database import CHUNK, atomic, code_of, connection, is_postgresql
from django_ayework.store.insertion import insertion, insertion_row_by_row, into
from django_ayework.store.portions import portions
from django_ayework.store.prepared import BACKEND, asks_for_backend, note_backend, run_prepared
from django_ayework.store.rows import WorkRow, statuses_of
from django_ayework.store.turns import insertion_in_turn, key_params, next_key, of_few_places, takes_turn

#: From how many works on COPY is tried. It is quicker for any two, but begins again when an id is taken.
MANY = 10

#: What MySQL and MariaDB call a row that is there already, by any unique key.
DUPLICATE_ENTRY = 1062

#: How a value that means nothing is written into a statement.
LITERALS = {"": "''", 0: "0"}


class IdsTaken(Exception):
    """Some of the ids exist already; rolls the savepoint back."""


def insert_works(works: Sequence[WorkRow], samples: Sequence[WorkRow] | None = None) -> set[str]:
    """Insert works of distinct ids in the caller's transaction; return the ids that existed already.

    A single one is a single statement. An existing id never breaks the caller's transaction. ``samples``, if
    given, has one of each kind.
    """
    if len(works) == 1:
        return set() if insert_one(works[0]) else {works[0].id}
    in_turn = any(map(takes_turn, works if samples is None else samples))
    if len(works) >= MANY and not in_turn and is_postgresql() and can_copy() and copied(works):
        return set()
    try:
        with atomic():
            for some in portions_of(works):
                made = insert_by_turn(some) if in_turn else insert_from_source(some)
                if made < len(some):
                    raise IdsTaken
    except IdsTaken:
        taken = set(statuses_of(work.id for work in works))
        fresh = [work for work in works if work.id not in taken]
        return taken | insert_works(fresh) if fresh else taken
    return set()


def portions_of(works: Sequence[WorkRow]) -> Iterator[Sequence[WorkRow]]:
    """Return works in portions that go into one statement each; their rows may be made one by one."""
    for start in range(0, len(works), CHUNK):
        some = works[start : start + CHUNK]
        for part in portions([len(work.input) for work in some], most=CHUNK):
            yield some[part]


def copied(works: Sequence[WorkRow]) -> bool:
    """Insert works by COPY; False, with nothing inserted, when an id is taken."""
    with suppress(IntegrityError), atomic():
        copy_works(works)
        return True
    return False


def insert_one(work: WorkRow) -> int:
    """Insert a work, by a statement that is made once for works with the same columns filled.

    Returns 0 when its id is taken, else 1.
    """
    database = connection()
    if takes_turn(work):
        values = values_of(work._replace(sort_key=""))
        sql = statement_of(database.vendor, values, in_turn=True)
        return rows_made(database, sql, [*params_of(database, values), *key_params(work)], needs_plan=True)
    values = values_of(work)
    return rows_made(database, statement_of(database.vendor, values), params_of(database, values))


def params_of(database: Any, values: Sequence[Any]) -> list[Any]:
    """Return those of the values that are something, as the driver takes them."""
    params = [value for value in values if value]
    if database.vendor != "postgresql":  # whose driver takes moments as they are
        adapt = database.ops.adapt_datetimefield_value
        params = [adapt(value) if isinstance(value, datetime) else value for value in params]
    return params


def statement_of(vendor: str, values: Sequence[Any], in_turn: bool = False) -> str:
    """Return an INSERT of these values, of which it is given those that are something."""
    return statement(vendor, tuple([True if value else value for value in values]), in_turn)


@functools.lru_cache(maxsize=256)
def statement(vendor: str, filled: tuple[object, ...], in_turn: bool = False) -> str:
    """Return an INSERT that passes over an id that is taken.

    ``filled`` has True for each column to be given, else its empty value. It is the same text each time: the
    driver looks up what it knows of it, and a text remembers its hash. The sort key of a work that is
    ``in_turn`` comes last, as the database finds it.
    """
    given = {name: value for name, value in zip(INSERTED, filled, strict=True) if value is not None}
    values = {name: "%s" if value is True else LITERALS[value] for name, value in given.items()}
    if in_turn:
        del values["sort_key"]
        values["sort_key"] = next_key(vendor)
    made = ", ".join(values.values())
    # MySQL lets no VALUES read the table that they are for.
    source = f"SELECT {made} FROM DUAL" if in_turn and vendor == "mysql" else f"VALUES ({made})"
    return passing_over(vendor, f"INSERT INTO {into(Work, list(values))} {source}")


def insert_by_turn(works: Sequence[WorkRow]) -> int:
    """Insert works of which some take turns; return how many rows that made."""
    others = [work for work in works if not takes_turn(work)]
    made = sum(map(insert_in_turn, of_few_places(filter(takes_turn, works))))
    return made + (insert_from_source(others) if others else 0)


def insert_in_turn(works: Sequence[WorkRow]) -> int:
    """Insert works that take turns by one statement, which numbers those of a label; return as for others."""
    insertion = insertion_in_turn(works)
    return insert_unless_taken(*insertion, many=False) if insertion else sum(map(insert_one, works))


def insert_from_source(works: Sequence[WorkRow]) -> int:
    """Insert works by one statement that reads them from a few parameters; return how many rows it made."""
    return insert_unless_taken(*insertion(Work, by_column(works)))


def insert_rows(works: Sequence[WorkRow]) -> int:
    """Insert works by a statement for each; return how many rows they made."""
    return insert_unless_taken(*insertion_row_by_row(Work, by_column(works)))


def insert_unless_taken(sql: str, params: Sequence[Any], many: bool) -> int:
    """Run an INSERT, or the same one for many rows; return how many rows were made."""
    database = connection()
    return rows_made(database, passing_over(database.vendor, sql), params, many)


def passing_over(vendor: str, sql: str) -> str:
    """Return an INSERT that makes no row of an id that is taken; on MySQL it fails."""
    return sql if vendor == "mysql" else f"{sql} ON CONFLICT (id) DO NOTHING"


def rows_made(
    database: Any, sql: str, params: Sequence[Any], many: bool = False, needs_plan: bool = False
) -> int:
    """Run such an INSERT; return how many rows it made.

    MySQL makes none when an id is taken: it undoes the statement, not the transaction.
    """
    try:
        return executed(database, sql, params, many, needs_plan)
    except IntegrityError as error:
        if database.vendor == "mysql" and is_taken_id(error):
            return 0
        raise


def is_taken_id(error: IntegrityError) -> bool:
    """Tell whether MySQL refused a row for its id, and not for anything else.

    It names the key at the end of the message: ``PRIMARY``, and MySQL 8 the table before it.
    """
    return code_of(error) == DUPLICATE_ENTRY and str(error.args[-1]).endswith(("'PRIMARY'", ".PRIMARY'"))


def executed(database: Any, sql: str, params: Sequence[Any], many: bool, needs_plan: bool) -> int:
    """Run a statement, or the same one for many rows; return how many rows were made."""
    if not many and (prepared := run_prepared(database, sql, params, needs_plan)) is not None:
        return int(prepared.rowcount)
    asks = not many and asks_for_backend(database)
    with database.cursor() as cursor:
        if asks:
            cursor.execute(sql + BACKEND, params)
            note_backend(database, cursor.fetchone())
        else:
            cursor.executemany(sql, params) if many else cursor.execute(sql, params)
        return int(cursor.rowcount)
