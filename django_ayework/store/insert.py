"""INSERT: one row, or many by the quickest statement that the database and its driver have.

Many rows go column by column. What all of them share is sent once; the columns that differ are a few
parameters, from which one statement reads any number of rows. PostgreSQL takes them by COPY from some number
of rows on. COPY has no ON CONFLICT, so one id that is taken fails all rows; the works are then inserted as on
other databases.

A work whose id is taken is left out without breaking the caller's transaction: by ON CONFLICT, and on MySQL
and MariaDB by the error, which undoes the statement alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import Any

from django.db import IntegrityError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model
from django.db.transaction import set_rollback

from django_ayework.models import Work
from django_ayework.rules.controls import FairnessKey
from django_ayework.rules.states import Status
from django_ayework.store.connections import BACKEND, asks_for_backend, note_backend, run_prepared
from django_ayework.store.database import CHUNK, alias, atomic, chunked, clock, code_of, connection, dialect
from django_ayework.store.dialects import Dialect
from django_ayework.store.lanes import next_turn, params_of, turns_of
from django_ayework.store.many_rows import adapted, adapted_values, portions
from django_ayework.store.rows import COLUMNS, WorkRow, statuses_of

#: Rows of one statement that reads them from parameters.
AT_ONCE = 2000
#: From how many works on COPY is tried. It is quicker for any two, but begins again when an id is taken.
MANY = 10
#: From how many rows of another table on COPY is quicker.
WORTH_COPYING = 200
#: Rows handed over to COPY at a time: the server stores them while the next are made.
PIECE = 500
#: The error of MySQL and MariaDB for a row whose unique key exists.
DUPLICATE_ENTRY = 1062


def insert_works(works: Sequence[WorkRow]) -> set[str]:
    """Insert works of distinct ids in the caller's transaction; return the ids that existed already.

    A single work is a single statement. For several, one more finds the turns of those with a fairness label.
    """
    if len(works) == 1:
        return set() if insert_one(works[0]) else {works[0].id}
    works = with_turns(works)
    if len(works) >= MANY and can_copy():
        with suppress(IntegrityError), atomic():  # nothing is inserted when an id is taken
            copy(Work, COLUMNS, works)
            return set()
    with atomic():
        parts = [works[part] for part in portions([len(work.input) for work in works], most=CHUNK)]
        if all(insert_together(Work, COLUMNS, part) == len(part) for part in parts):
            return set()
        set_rollback(True, using=alias())
    taken = set(statuses_of(work.id for work in works))
    fresh = [work for work in works if work.id not in taken]
    return taken | insert_works(fresh) if fresh else taken


def with_turns(works: Sequence[WorkRow]) -> Sequence[WorkRow]:
    """Return works with the turns of those that are to wait in turn."""
    keys = {work.id: key for work in works if (key := fairness_key_of(work))}
    if not keys:
        return works
    turns = turns_of(keys, clock.now())
    return [work._replace(sort_key=turns.get(work.id, work.sort_key)) for work in works]


def fairness_key_of(work: WorkRow) -> FairnessKey | None:
    """Return where a new work is to wait in turn; None for one that does not."""
    return work.fairness_key if work.fairness and work.status == Status.PENDING else None


def insert_rows(model: type[Model], names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert rows, each with the stored values of these columns.

    Instances of the model would cost more than everything else for works that wait for thousands of others.
    """
    if len(rows) >= WORTH_COPYING and can_copy():
        copy(model, names, rows)
        return
    for some in chunked(rows, AT_ONCE):
        insert_together(model, names, some)


def insert_one(work: WorkRow) -> int:
    """Insert a work; return how many rows that made, which is 0 when the id is taken."""
    session, database = connection(), dialect()
    adapt = session.ops.adapt_datetimefield_value
    key = fairness_key_of(work)
    values = work._replace(sort_key="") if key else work
    params: list[Any] = [adapt(v) if isinstance(v, datetime) else v for v in values if v]
    params += params_of(key, int(work.sort_key)) if key else ()
    filled = tuple([True if value else value for value in values])
    sql = statement(database, filled, bool(key))
    return rows_made(session, database, sql, params, needs_plan=bool(key))


@lru_cache(maxsize=256)
def statement(dialect: Dialect, filled: tuple[object, ...], in_turn: bool) -> str:
    """Return an INSERT of one work.

    ``filled`` has True for each column that is a parameter, else its empty value: each parameter costs the
    driver as much as a column costs the server. The text is cached, as drivers look up prepared statements by
    it. The sort key of a work that is ``in_turn`` comes last, as the database finds it.
    """
    given = {name: value for name, value in zip(COLUMNS, filled, strict=True) if value is not None}
    values = {name: "%s" if value is True else repr(value) for name, value in given.items()}
    if in_turn:
        del values["sort_key"]
        values["sort_key"] = next_turn(dialect)
    made = (dialect if in_turn else Dialect).values_that_read.format(values=", ".join(values.values()))
    return f"INSERT INTO {into(dialect, Work, values)} {made}{dialect.unless_taken}"


def by_column(
    names: Sequence[str], rows: Sequence[tuple[Any, ...]]
) -> tuple[dict[str, Any], dict[str, tuple[Any, ...]]]:
    """Return the values that all rows share, and the others by column, which are never empty.

    Columns that are NULL in all rows are left out. There must be a row.
    """
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    varying = {name: column for name, column in columns.items() if column.count(column[0]) < len(column)}
    varying = varying or {names[0]: columns[names[0]]}
    alike = ((name, column[0]) for name, column in columns.items() if name not in varying)
    return {name: value for name, value in alike if value is not None}, varying


def insert_together(model: type[Model], names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> int:
    """Insert rows, each with the values of these columns; return how many that made."""
    shared, varying = by_column(names, rows)
    session, database = connection(), dialect()
    sql = insertion(database, model, tuple(shared), tuple(varying))
    columns = database.source_params(adapted(session, model, varying))
    return rows_made(session, database, sql, [*adapted_values(session, model, shared), *columns])


@lru_cache(maxsize=256)
def insertion(dialect: Dialect, model: type[Model], shared: tuple[str, ...], varying: tuple[str, ...]) -> str:
    """Return an INSERT of rows that are read from parameters.

    SQLite would take the ON of ON CONFLICT for a part of the FROM, were there no WHERE.
    """
    values = [dialect.mark(model._meta.get_field(name)) for name in shared]
    values += [f"v.v{number}" for number in range(len(varying))]
    source = dialect.source([model._meta.get_field(name) for name in varying])
    made = f"SELECT {', '.join(values)} FROM {source} WHERE TRUE"
    return f"INSERT INTO {into(dialect, model, (*shared, *varying))} {made}{dialect.unless_taken}"


def into(dialect: Dialect, model: type[Model], names: Iterable[str]) -> str:
    """Return a table and columns of it, as INSERT and COPY want them."""
    columns = dialect.columns(model, names).values()
    return f"{dialect.quoted(model._meta.db_table)} ({', '.join(columns)})"


def rows_made(
    session: BaseDatabaseWrapper, database: Dialect, sql: str, params: Sequence[Any], needs_plan: bool = False
) -> int:
    """Run an INSERT; return how many rows it made. On MySQL: none if an id is taken."""
    try:
        if database.has_arrays:
            return executed_on_postgresql(session, sql, params, needs_plan)
        with session.cursor() as cursor:
            cursor.execute(sql, params)
            return int(cursor.rowcount)
    except IntegrityError as error:
        if is_taken_id(error):
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

    The last quoted part of the message names the key: ``PRIMARY``, and MySQL 8 the table before it. What
    follows depends on the language of the server's messages (``lc_messages``).
    """
    named, _, _ = str(error.args[-1]).rpartition("'")
    return code_of(error) == DUPLICATE_ENTRY and named.endswith(("'PRIMARY", ".PRIMARY"))


# COPY, in the text format: every value is as the server itself would write it, so nothing depends on a
# column's width.

NULL = r"\N"
#: Characters with a meaning in the format. The backslash comes first, as the others are escaped by one.
SPECIAL = {"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"}


def can_copy() -> bool:
    """Tell whether this is PostgreSQL by psycopg 3, whose cursors copy."""
    if not dialect().has_arrays:
        return False
    driver: Any = connection()
    return bool(driver.Database.__name__ == "psycopg")


def copy(model: type[Model], names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert rows by COPY in the caller's transaction, which an id that is taken breaks."""
    shared, varying = by_column(names, rows)
    database = connection()
    database.validate_no_broken_transaction()
    sql = f"COPY {into(dialect(), model, (*varying, *shared))} FROM STDIN"
    end = "".join(f"\t{text_of(value)}" for value in shared.values()) + "\n"
    with database.cursor() as cursor, database.wrap_database_errors, cursor.copy(sql) as stream:
        for start in range(0, len(rows), PIECE):
            texts = [texts_of(column[start : start + PIECE]) for column in varying.values()]
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
