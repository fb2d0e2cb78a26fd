"""Columns of values as parameters of one statement."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from django_ayework.store.database import connection

# --- arrays ---
# Arrays as PostgreSQL writes them: one parameter for a whole column, made by the thousand.
#
# The driver's own arrays are put together element by element, in Python and with a check of every type;
# that
# costs more than everything else a statement over many rows does here.


def array_text(values: Sequence[Any]) -> str:
    r"""Return the text of an array of texts, numbers, booleans, moments or None; cast it to its type.

    PostgreSQL's documentation, "Array Input and Output Syntax": quoted elements escape ``"`` and ``\``.

    >>> print(array_text(["a", 'say "b"', None, 3]))
    {"a","say \"b\"",NULL,"3"}
    """
    with suppress(TypeError):  # not texts alone
        quick = '","'.join(values)
        if values and "\\" not in quick and quick.count('"') == 2 * (len(values) - 1):
            return '{"' + quick + '"}'
    return "{" + ",".join(map(element, values)) + "}"


def element(value: Any) -> str:
    """Return one element, quoted."""
    if value is None:
        return "NULL"
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


# --- sources ---
# Columns as a table for FROM: one statement takes any number of rows from a few parameters.

#: Kinds of fields whose values every database takes as they are: to ask Django for each takes its time.
TAKEN_AS_THEY_ARE = frozenset({"CharField", "TextField", "IntegerField", "BigAutoField"})

#: Of which types PostgreSQL's arrays are; any other is one of texts.
ARRAYS = {
    "IntegerField": "bigint[]",
    "BigAutoField": "bigint[]",
    "DateTimeField": "timestamptz[]",
    "BooleanField": "boolean[]",
}
#: As what MySQL and MariaDB read JSON. Texts are wide: what is too long would become NULL unnoticed.
JSON_TYPES = {
    "IntegerField": "BIGINT",
    "BigAutoField": "BIGINT",
    "DateTimeField": "DATETIME(6)",
    "BooleanField": "TINYINT",
}
TEXT = "LONGTEXT CHARACTER SET utf8mb4"
#: NUL as JSON writes it; behind a backslash that is one itself, it is a text that looks like it.
NUL = r"\u0000"
ESCAPED_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


class Source(NamedTuple):
    """A table ``v`` with the columns ``v0``, ``v1`` and so on, and the parameters of its SQL."""

    sql: str
    params: list[Any]

    @property
    def loses_text(self) -> bool:
        """Whether a text of it would be cut: SQLite ends those of JSON at the first NUL."""
        if connection().vendor != "sqlite" or NUL not in self.params[0]:
            return False
        return ESCAPED_NUL.search(self.params[0]) is not None


def source_of(fields: Sequence[Any], columns: Sequence[Sequence[Any]]) -> Source:
    """Return columns of these fields as a table, in the way that the database reads quickest."""
    return SOURCES[connection().vendor](fields, columns)


def as_arrays(fields: Sequence[Any], columns: Sequence[Sequence[Any]]) -> Source:
    """PostgreSQL zips arrays."""
    arrays = ", ".join(f"%s::{array_type(field)}" for field in fields)
    names = ", ".join(f"v{number}" for number in range(len(fields)))
    return Source(f"unnest({arrays}) AS v({names})", [array_text(column) for column in columns])


def array_type(field: Any) -> str:
    """Return the PostgreSQL array type whose elements the column takes."""
    return ARRAYS.get(field.get_internal_type(), "text[]")


def as_json(fields: Sequence[Any], columns: Sequence[Sequence[Any]]) -> Source:
    """One text has every row, as a list, which SQLite takes apart."""
    parts = ", ".join(f"json_extract(value, '$[{number}]') AS v{number}" for number in range(len(fields)))
    return Source(f"(SELECT {parts} FROM json_each(%s)) AS v", [rows_as_json(fields, columns)])


def as_json_table(fields: Sequence[Any], columns: Sequence[Sequence[Any]]) -> Source:
    """One text has every row, as a list; MySQL and MariaDB read it twice as quickly as a list of VALUES."""
    parts = ", ".join(
        f"v{number} {JSON_TYPES.get(field.get_internal_type(), TEXT)} PATH '$[{number}]'"
        for number, field in enumerate(fields)
    )
    return Source(f"JSON_TABLE(%s, '$[*]' COLUMNS({parts})) AS v", [rows_as_json(fields, columns)])


def rows_as_json(fields: Sequence[Any], columns: Sequence[Sequence[Any]]) -> str:
    """Return rows as one text."""
    adapted = [adapted_column(field, column) for field, column in zip(fields, columns, strict=True)]
    return json.dumps(list(zip(*adapted, strict=True)), ensure_ascii=False, separators=(",", ":"))


def adapted_column(field: Any, column: Sequence[Any]) -> Sequence[Any]:
    """Return values as the database takes them; texts and numbers are taken as they are."""
    if field.get_internal_type() in TAKEN_AS_THEY_ARE:
        return column
    database = connection()
    return [field.get_db_prep_save(value, database) for value in column]


SOURCES: Mapping[str, Callable[..., Source]] = {
    "postgresql": as_arrays,
    "sqlite": as_json,
    "mysql": as_json_table,
}

# --- portions ---
# How many rows go into one statement: few enough, and not too large for what the server takes at a time.

#: Characters of the values in one statement, unless one row has more. MariaDB takes packets of 16 MiB by
#: default, and a character has up to four bytes; a larger one ends the session.
LARGEST = 1_000_000


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
