"""Indexes over the few rows a query is about."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.backends.ddl_references import Statement


class PartialIndex(models.Index):
    """An index over the rows that match ``where``, where the database has partial indexes.

    MySQL and MariaDB have none: there the index covers all rows, and ``leading`` columns (what ``where``
    tests for equality) come first, so that the same query reads the same few entries.
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
        return path, tuple(args), {**kwargs, "where": self.where, "leading": self.leading}

    def create_sql(
        self,
        model: type[models.Model],
        schema_editor: BaseDatabaseSchemaEditor,
        using: str = "",
        **kwargs: Any,
    ) -> Statement:
        """Return the statement that suits the database."""
        return self.for_database(schema_editor).create_sql(model, schema_editor, using=using, **kwargs)

    def for_database(self, schema_editor: BaseDatabaseSchemaEditor) -> models.Index:
        """Return the plain Django index that this is on the editor's database."""
        if schema_editor.connection.features.supports_partial_indexes:
            return models.Index(fields=self.fields, name=self.name, condition=self.where)
        return models.Index(fields=[*self.leading, *self.fields], name=self.name)


class PartialUnique(models.UniqueConstraint):
    """Uniqueness among the rows that match ``where``, where the database has partial indexes.

    MySQL and MariaDB have none: there it covers all rows, so ``where`` may only ask for a column that is not
    null, for nulls are distinct anyway.
    """

    def __init__(self, *, fields: Any, name: str, where: models.Q) -> None:
        super().__init__(fields=fields, name=name)
        self.where = where

    def deconstruct(self) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
        """Return what a migration needs to rebuild this constraint."""
        path, args, kwargs = super().deconstruct()
        return path, tuple(args), {**kwargs, "where": self.where}

    def constraint_sql(self, model: type[models.Model] | None, schema_editor: Any) -> str:
        """Return the part of CREATE TABLE that suits the database."""
        return self.for_database(schema_editor).constraint_sql(model, schema_editor)

    def create_sql(self, model: type[models.Model] | None, schema_editor: Any) -> Any:
        """Return the statement that suits the database."""
        return self.for_database(schema_editor).create_sql(model, schema_editor)

    def remove_sql(self, model: type[models.Model] | None, schema_editor: Any) -> Any:
        """Return the statement that undoes it."""
        return self.for_database(schema_editor).remove_sql(model, schema_editor)

    def for_database(self, schema_editor: Any) -> models.UniqueConstraint:
        """Return the plain Django constraint that this is on the editor's database."""
        partial = schema_editor.connection.features.supports_partial_indexes
        return models.UniqueConstraint(
            fields=self.fields, name=self.name, condition=self.where if partial else None
        )
