"""Columns that behave the same on every database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

if TYPE_CHECKING:
    # Django's fields take type arguments in its stubs only.
    TextualField = models.Field[Any, Any]
    CharField = models.CharField[Any, Any]
    TextField = models.TextField[Any, Any]
else:
    TextualField, CharField, TextField = models.Field, models.CharField, models.TextField

#: Byte order everywhere: ids differing in case must differ, and sorting must not depend on a locale.
#: SQLite compares bytes as it is.
COLLATIONS = {"mysql": "utf8mb4_bin", "postgresql": "C"}


class ByteOrdered(TextualField):
    """A text column compared byte by byte."""

    def db_parameters(self, connection: BaseDatabaseWrapper) -> dict[str, Any]:
        """Return the column's type with the vendor's binary collation."""
        return {**super().db_parameters(connection), "collation": COLLATIONS.get(connection.vendor)}


class IdentifierField(ByteOrdered, CharField):
    """An id, a name or a label."""

    def db_type(self, connection: BaseDatabaseWrapper) -> str | None:
        """Return the column's type, on PostgreSQL under its long name.

        Django gives unique ``varchar`` columns a second index for LIKE; with byte order the first serves
        both, and every insert is spared an index entry.
        """
        short = super().db_type(connection)
        if connection.vendor == "postgresql" and short is not None:
            return short.replace("varchar", "character varying", 1)
        return short


class PayloadField(ByteOrdered, TextField):
    """Encoded data: text of any length, that the database never looks into."""
