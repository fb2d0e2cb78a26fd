"""Inserting works."""

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
from django_ayework.store.bulk import (
    INSERTED,
    ByColumn,
    by_column,
    by_columns,
    insertion,
    insertion_row_by_row,
    into,
    values_of,
)
from django_ayework.store.database import CHUNK, atomic, chunked, code_of, connection, is_postgresql
from django_ayework.store.fairness import insertion_in_turn, key_params, next_key, of_few_places, takes_turn
from django_ayework.store.parameters import portions
from django_ayework.store.prepared import BACKEND, asks_for_backend, note_backend, run_prepared
from django_ayework.store.rows import WorkRow, statuses_of

# --- copying ---
# COPY: the quickest way for many rows into PostgreSQL.
#
# It knows no ON CONFLICT: one id that is taken fails all rows. The text format is used, for it says every
# value
# as the server itself would write it, so nothing depends on a column's width.

#: Rows handed over at a time: the server stores some while the next are made.
PIECE = 500

NULL = r"\N"
#: What the format gives a meaning of its own. The backslash comes first: the others bring one.
SPECIAL = {"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"}


def can_copy() -> bool:
    """Tell whether the driver is psycopg 3, whose cursors copy."""
    driver: Any = connection()
    return bool(driver.Database.__name__ == "psycopg")


def copy_works(works: Sequence[WorkRow]) -> None:
    """Insert works in the caller's transaction, which must be at a savepoint.

    One COPY goes on for as long as works have no further columns. Raises IntegrityError when an id is taken,
    and whatever the works raise when they are looked at.
    """
    database = connection()
    database.validate_no_broken_transaction()
    failures: list[Exception] = []
    pieces = pieces_of(works, failures)
    names: list[str] = []
    piece = next(pieces, None)
    while piece is not None:
        names += [name for name in piece.names if name not in names]
        sql = f"COPY {into(Work, names)} FROM STDIN"
        with database.cursor() as cursor, database.wrap_database_errors, cursor.copy(sql) as copy:
            while piece is not None and set(names).issuperset(piece.names):
                copy.write(lines_of(piece, names))
                piece = next(pieces, None)
    for failure in failures:
        raise failure


def copy_rows(model: type[Model], names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert rows, each with the values of these columns, in the caller's transaction."""
    database = connection()
    database.validate_no_broken_transaction()
    sql = f"COPY {into(model, names)} FROM STDIN"
    with database.cursor() as cursor, database.wrap_database_errors, cursor.copy(sql) as copy:
        for some in chunked(rows, PIECE):
            copy.write(lines_of(by_columns(names, some), names))


def pieces_of(works: Sequence[WorkRow], failures: list[Exception]) -> Iterator[ByColumn]:
    """Return the works by column, some at a time; end with a failure, which goes to ``failures``.

    Raised in the middle of a COPY it would be told to the server, whose log is no place for what is queued.
    """
    try:
        for start in range(0, len(works), PIECE):
            yield by_column(works[start : start + PIECE])
    except Exception as failure:
        failures.append(failure)


def lines_of(piece: ByColumn, names: Sequence[str]) -> str:
    """Return works as lines with these columns; what all of them end in is made once."""
    last = max(place for place, name in enumerate(names) if name in piece.varying)
    columns = [
        texts_of(piece.varying[name]) if name in piece.varying else repeat(text_of(piece.shared.get(name)))
        for name in names[: last + 1]
    ]
    end = "".join(f"\t{text_of(piece.shared.get(name))}" for name in names[last + 1 :]) + "\n"
    return end.join(map("\t".join, zip(*columns, strict=False))) + end


def texts_of(values: Sequence[Any]) -> Iterable[str]:
    """Return the values of a column as text; most have nothing to escape, which is seen at one glance."""
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


# --- inserts ---
# Inserting works.

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


# --- blanks ---
# An INSERT to fill in, for works whose rows differ in what is their own only.


@dataclass(frozen=True, slots=True)
class BlankInsert:
    """An INSERT without a work's id, its input, and the moment at which it is queued and due."""

    sql: str
    before: tuple[Any, ...]  # the parameters between id and input
    between: tuple[Any, ...]  # those between input and queued_at, which run_at follows
    after: tuple[Any, ...]

    @classmethod
    def of(cls, vendor: str, sample: WorkRow) -> BlankInsert:
        """Return the INSERT of works as this one, of which id and input must be something."""
        values = values_of(sample)
        given = {name: value for name, value in zip(INSERTED, values, strict=True) if value}
        names, params = [*given], tuple(given.values())
        input, queued_at = names.index("input"), names.index("queued_at")
        sql = statement_of(vendor, values)
        return cls(sql, params[1:input], params[input + 1 : queued_at], params[queued_at + 2 :])

    def insert(self, database: Any, id: str, input: str, now: datetime) -> int:
        """Insert a work; return 0 when its id is taken, else 1."""
        moment = now if database.vendor == "postgresql" else database.ops.adapt_datetimefield_value(now)
        params = (id, *self.before, input, *self.between, moment, moment, *self.after)
        return rows_made(database, self.sql, params)
