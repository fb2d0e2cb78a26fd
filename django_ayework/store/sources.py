"""Columns as a table for FROM: one statement takes any number of rows from a few parameters."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from django_ayework.store.arrays import array_text
from django_ayework.store.database import connection

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
