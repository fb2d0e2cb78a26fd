"""COPY: the quickest way for many rows into PostgreSQL.

It knows no ON CONFLICT: one id that is taken fails all rows. The text format is used, for it says every value
as the server itself would write it, so nothing depends on a column's width.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import repeat
from typing import Any

from django.db.models import Model

from django_ayework.models import Work
from django_ayework.store.columns import by_column
from django_ayework.store.database import chunked, connection
from django_ayework.store.insertion import ByColumn, by_columns, into
from django_ayework.store.rows import WorkRow

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
