"""Columns, indexes and constraints that behave the same on every database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.backends.ddl_references import Statement

if TYPE_CHECKING:
    # Django's fields take type arguments in its stubs only.
    TextualField = models.Field[Any, Any]
    CharField = models.CharField[Any, Any]
    TextField = models.TextField[Any, Any]
else:
    TextualField, CharField, TextField = models.Field, models.CharField, models.TextField

#: Byte order everywhere: ids that differ in case must differ, and sorting must not depend on a locale.
#: SQLite compares bytes by default.
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

        Django gives unique ``varchar`` columns a second index for LIKE. With byte order the first index
        serves both, so the long name saves an index entry per insert.
        """
        short = super().db_type(connection)
        if connection.vendor == "postgresql" and short is not None:
            return short.replace("varchar", "character varying", 1)
        return short


class PayloadField(ByteOrdered, TextField):
    """Encoded data: text of any length that the database never looks into."""


class PartialIndex(models.Index):
    """An index over the rows that match ``where``, where the database has partial indexes.

    MySQL and MariaDB have none. There the index covers all rows, and the ``leading`` columns (those that
    ``where`` compares for equality) come first, so that the same query reads the same few entries.
    """

    def __init__(
        self, *, fields: Any, name: str, where: models.Q, leading: tuple[str, ...] = ("status",)
    ) -> None:
        super().__init__(fields=fields, name=name)
        self.where = where
        self.leading = tuple(leading)

    def deconstruct(self) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
        """Return what a migration needs to rebuild this index."""
        path, args, kwargs = super().deconstruct()
        return path, tuple(args), kwargs | {"where": self.where, "leading": self.leading}

    def create_sql(
        self,
        model: type[models.Model],
        schema_editor: BaseDatabaseSchemaEditor,
        using: str = "",
        **kwargs: Any,
    ) -> Statement:
        """Return the statement for the database."""
        return self.for_database(schema_editor.connection).create_sql(
            model, schema_editor, using=using, **kwargs
        )

    def for_database(self, connection: BaseDatabaseWrapper) -> models.Index:
        """Return the equivalent plain Django index on this database."""
        if connection.features.supports_partial_indexes:
            return models.Index(fields=self.fields, name=self.name, condition=self.where)
        return models.Index(fields=[*self.leading, *self.fields], name=self.name)


class PartialUnique(models.UniqueConstraint):
    """Uniqueness among the rows that match ``where``, where the database has partial indexes.

    MySQL and MariaDB have none. There the constraint covers all rows, so ``where`` may only ask for a column
    that is not null: nulls are distinct anyway.
    """

    def __init__(self, *, fields: Any, name: str, where: models.Q) -> None:
        super().__init__(fields=fields, name=name)
        self.where = where

    def deconstruct(self) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
        """Return what a migration needs to rebuild this constraint."""
        path, args, kwargs = super().deconstruct()
        return path, tuple(args), {**kwargs, "where": self.where}

    def constraint_sql(self, model: type[models.Model] | None, schema_editor: Any) -> str:
        """Return the part of CREATE TABLE for the database."""
        return self.for_database(schema_editor.connection).constraint_sql(model, schema_editor)

    def create_sql(self, model: type[models.Model] | None, schema_editor: Any) -> Any:
        """Return the statement for the database."""
        return self.for_database(schema_editor.connection).create_sql(model, schema_editor)

    def remove_sql(self, model: type[models.Model] | None, schema_editor: Any) -> Any:
        """Return the statement that removes the constraint."""
        return self.for_database(schema_editor.connection).remove_sql(model, schema_editor)

    def for_database(self, connection: BaseDatabaseWrapper) -> models.UniqueConstraint:
        """Return the equivalent plain Django constraint on this database."""
        where = self.where if connection.features.supports_partial_indexes else None
        return models.UniqueConstraint(fields=self.fields, name=self.name, condition=where)
