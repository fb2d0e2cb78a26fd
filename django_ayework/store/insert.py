"""INSERT: one row, or many by the quickest statement that the database and its driver have.

Many rows go column by column. What all of them share is sent once; the columns that differ are a few
parameters, from which one statement reads any number of rows. PostgreSQL takes them by COPY from some number
of rows on. COPY has no ON CONFLICT, so one id that is taken fails all rows; the works are then inserted as on
other databases.

A work whose id is taken is left out without breaking the caller's transaction: by ON CONFLICT, and on MySQL
and MariaDB by the error, which undoes the statement alone.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import repeat
from typing import Any

from django.db import IntegrityError
from django.db.models import Model

from django_ayework.models import Work
from django_ayework.store.bulk import field_of, quoted
from django_ayework.store.database import CHUNK, atomic, chunked, code_of, connection, is_postgresql
from django_ayework.store.fairness import (
    key_params,
    next_key,
    numbered,
    of_few_places,
    params_of,
    place_of,
    select_turns,
    takes_turn,
    turn_as_key,
)
from django_ayework.store.parameters import adapted_column, array_type, portions, source_of
from django_ayework.store.prepared import BACKEND, asks_for_backend, note_backend, run_prepared
from django_ayework.store.rows import COLUMNS, WorkRow, statuses_of

#: Rows of one statement that reads them from parameters.
AT_ONCE = 2000
#: From how many works on COPY is tried. It is quicker for any two, but begins again when an id is taken.
MANY = 10
#: Rows handed over to COPY at a time: the server stores them while the next are made.
PIECE = 500
#: What MySQL and MariaDB call a row that exists already, by any unique key.
DUPLICATE_ENTRY = 1062


class IdsTaken(Exception):
    """Some of the ids exist already; rolls the savepoint back."""


def insert_works(works: Sequence[WorkRow]) -> set[str]:
    """Insert works of distinct ids in the caller's transaction; return the ids that existed already.

    A single work is a single statement.
    """
    if len(works) == 1:
        return set() if insert_one(works[0]) else {works[0].id}
    in_turn = any(map(takes_turn, works))
    if len(works) >= MANY and not in_turn and can_copy() and was_copied(works):
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
    """Return works in portions that are small enough for one statement each."""
    for part in portions([len(work.input) for work in works], most=CHUNK):
        yield works[part]


def insert_rows(
    model: type[Model], names: Sequence[str], rows: Sequence[tuple[Any, ...]], copy_from: int
) -> None:
    """Insert rows, each with the stored values of these columns; by COPY from ``copy_from`` rows on.

    Instances of the model would cost more than everything else for works that wait for thousands of others.
    """
    if len(rows) >= copy_from and can_copy():
        copy(model, by_column(names, rows), len(rows))
        return
    for some in chunked(rows, AT_ONCE):
        sql, params, many = insertion(model, by_column(names, some))
        with connection().cursor() as cursor:
            cursor.executemany(sql, params) if many else cursor.execute(sql, params)


# One work


def insert_one(work: WorkRow) -> int:
    """Insert a work; return how many rows that made, which is 0 when the id is taken."""
    database, in_turn = connection(), takes_turn(work)
    values = work._replace(sort_key="") if in_turn else work
    sql = statement(database.vendor, tuple([True if value else value for value in values]), in_turn)
    params: list[Any] = [value for value in values if value]
    if database.vendor != "postgresql":  # whose driver takes moments as they are
        adapt = database.ops.adapt_datetimefield_value
        # Each moment once: most works have the same one in two columns, and to adapt it is dear.
        moments = {moment: adapt(moment) for moment in {v for v in params if isinstance(v, datetime)}}
        params = [moments[value] if isinstance(value, datetime) else value for value in params]
    return rows_made(database, sql, [*params, *key_params(work)] if in_turn else params, needs_plan=in_turn)


@functools.lru_cache(maxsize=256)
def statement(vendor: str, filled: tuple[object, ...], in_turn: bool = False) -> str:
    """Return an INSERT of one work.

    ``filled`` has True for each column that is a parameter, else its empty value: each parameter costs the
    driver as much as a column costs the server. The text is cached, as drivers look up prepared statements by
    it. The sort key of a work that is ``in_turn`` comes last, as the database finds it.
    """
    given = {name: value for name, value in zip(COLUMNS, filled, strict=True) if value is not None}
    values = {name: "%s" if value is True else repr(value) for name, value in given.items()}
    if in_turn:
        del values["sort_key"]
        values["sort_key"] = next_key(vendor)
    made = ", ".join(values.values())
    # MySQL allows no VALUES that read the table they are for.
    source = f"SELECT {made} FROM DUAL" if in_turn and vendor == "mysql" else f"VALUES ({made})"
    return passing_over(vendor, f"INSERT INTO {into(Work, list(values))} {source}")


# Rows by column


@dataclass(frozen=True, slots=True)
class ByColumn:
    """Rows by column: ``shared`` has one value for all, ``varying``, of which there is some, one for each."""

    shared: dict[str, Any]
    varying: dict[str, tuple[Any, ...]]

    @property
    def names(self) -> list[str]:
        """The columns, those that vary first."""
        return [*self.varying, *self.shared]


def by_column(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> ByColumn:
    """Return rows, of which there must be some, by column; a column that is NULL in all is left out."""
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    varying = {name: column for name, column in columns.items() if column.count(column[0]) < len(column)}
    varying = varying or {names[0]: columns[names[0]]}
    shared = {name: column[0] for name, column in columns.items() if name not in varying}
    return ByColumn({name: value for name, value in shared.items() if value is not None}, varying)


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
    """Return an INSERT for each row, which any database runs."""
    marks = ", ".join(["%s"] * len(columns.names))
    sql = f"INSERT INTO {into(model, columns.names)} VALUES ({marks})"
    given = [adapted_column(field_of(model, name), column) for name, column in columns.varying.items()]
    return sql, list(zip(*given, *map(repeat, adapted_shared(model, columns)), strict=False)), True


def adapted_shared(model: type[Model], columns: ByColumn) -> list[Any]:
    """Return the values that all rows share, as the database takes them."""
    return [adapted_column(field_of(model, name), [value])[0] for name, value in columns.shared.items()]


def into(model: type[Model], names: Iterable[str]) -> str:
    """Return a table and columns of it, as INSERT and COPY want them."""
    columns = ", ".join(quoted(field_of(model, name).column) for name in names)
    return f"{quoted(model._meta.db_table)} ({columns})"


def mark_of(field: Any) -> str:
    """Return the placeholder of a value that all rows share; PostgreSQL has to be told its type."""
    return f"%s::{array_type(field).removesuffix('[]')}" if is_postgresql() else "%s"


def insert_from_source(works: Sequence[WorkRow]) -> int:
    """Insert works by one statement that reads them from a few parameters; return how many rows it made."""
    return insert_unless_taken(*insertion(Work, by_column(COLUMNS, works)))


def insert_by_turn(works: Sequence[WorkRow]) -> int:
    """Insert works of which some take turns; return how many rows that made."""
    others = [work for work in works if not takes_turn(work)]
    made = sum(map(insert_in_turn, of_few_places(filter(takes_turn, works))))
    return made + (insert_from_source(others) if others else 0)


def insert_in_turn(works: Sequence[WorkRow]) -> int:
    """Insert works that take turns; return how many rows that made.

    The statement finds the next turn of each place once, and sees no row of its own. So works of one place
    are numbered here.
    """
    places = [place_of(work) for work in works]
    numbers = {place: number for number, place in enumerate(dict.fromkeys(places))}
    columns, first = by_column(COLUMNS, works), min(int(work.sort_key) for work in works)
    columns.varying.pop("sort_key", None)
    columns.shared.pop("sort_key", None)
    varying, number = columns.varying, field_of(Work, "attempt")
    source = source_of(
        [*(field_of(Work, name) for name in varying), number, number],
        [*varying.values(), [numbers[place] for place in places], numbered(places)],
    )
    if source.loses_text:
        return sum(map(insert_one, works))
    values = {name: f"v.v{place}" for place, name in enumerate(varying)}
    values |= {name: mark_of(field_of(Work, name)) for name in columns.shared}
    values["sort_key"] = turn_as_key(f"t.turn + v.v{len(varying) + 1}", connection().vendor)
    sql = (
        f"INSERT INTO {into(Work, values)} SELECT {', '.join(values.values())} FROM {source.sql} "
        f"JOIN ({select_turns(numbers.values())}) AS t ON t.number = v.v{len(varying)} WHERE true"
    )
    turns = [param for place in numbers for param in params_of(place, first)]
    return insert_unless_taken(sql, [*adapted_shared(Work, columns), *source.params, *turns], many=False)


# COPY, in the text format: every value is as the server itself would write it, so nothing depends on a
# column's width.

NULL = r"\N"
#: Characters with a meaning in the format. The backslash comes first, as the others are escaped by one.
SPECIAL = {"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"}


def can_copy() -> bool:
    """Tell whether this is PostgreSQL by psycopg 3, whose cursors copy."""
    if not is_postgresql():
        return False
    driver: Any = connection()
    return bool(driver.Database.__name__ == "psycopg")


def was_copied(works: Sequence[WorkRow]) -> bool:
    """Insert works by COPY; return False, with nothing inserted, when an id is taken."""
    with suppress(IntegrityError), atomic():
        copy_works(works)
        return True
    return False


def copy_works(works: Sequence[WorkRow]) -> None:
    """Insert works by COPY, in a savepoint of the caller: a taken id is an error."""
    copy(Work, by_column(COLUMNS, works), len(works))


def copy(model: type[Model], columns: ByColumn, number: int) -> None:
    """Insert so many rows by COPY in the caller's transaction."""
    database = connection()
    database.validate_no_broken_transaction()
    sql = f"COPY {into(model, columns.names)} FROM STDIN"
    end = "".join(f"\t{text_of(value)}" for value in columns.shared.values()) + "\n"
    with database.cursor() as cursor, database.wrap_database_errors, cursor.copy(sql) as stream:
        for start in range(0, number, PIECE):
            texts = [texts_of(column[start : start + PIECE]) for column in columns.varying.values()]
            stream.write(end.join(map("\t".join, zip(*texts, strict=True))) + end)


def texts_of(values: Sequence[Any]) -> Iterable[str]:
    """Return the values of a column as text. Usually there is nothing to escape, which one test finds."""
    if set(map(type, values)) == {str} and not any(map("".join(values).__contains__, SPECIAL)):
        return values
    return map(text_of, values)


def text_of(value: Any) -> str:
    r"""Return a value as text of the format.

    >>> text_of(None), text_of(7), text_of("a\tb"), text_of("\\N")
    ('\\N', '7', 'a\\tb', '\\\\N')
    """
    if value is None:
        return NULL
    if isinstance(value, int):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    text = str(value)
    for character, escaped in SPECIAL.items():
        text = text.replace(character, escaped)
    return text


# Statements


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
    """Run such an INSERT; return how many rows it made: none on MySQL when an id is taken."""
    try:
        if many or database.vendor != "postgresql":
            with database.cursor() as cursor:
                cursor.executemany(sql, params) if many else cursor.execute(sql, params)
                return int(cursor.rowcount)
        return executed_on_postgresql(database, sql, params, needs_plan)
    except IntegrityError as error:
        if database.vendor == "mysql" and is_taken_id(error):
            return 0
        raise


def executed_on_postgresql(database: Any, sql: str, params: Sequence[Any], needs_plan: bool) -> int:
    """Run a statement, prepared if possible; return how many rows were made."""
    if (prepared := run_prepared(database, sql, params, needs_plan)) is not None:
        return int(prepared.rowcount)
    asks = asks_for_backend(database)
    with database.cursor() as cursor:
        cursor.execute(sql + BACKEND if asks else sql, params)
        if asks:
            note_backend(database, cursor.fetchone())
        return int(cursor.rowcount)


def is_taken_id(error: IntegrityError) -> bool:
    """Tell whether MySQL refused a row for its id, and for nothing else.

    It names the key at the end of the message: ``PRIMARY``, and MySQL 8 the table before it.
    """
    return code_of(error) == DUPLICATE_ENTRY and str(error.args[-1]).endswith(("'PRIMARY'", ".PRIMARY'"))
