"""Columns and indexes that behave the same on every database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.backends.ddl_references import Statement, Table
from django.db.models.sql import Query

# --- fields ---
# Columns that behave the same on every database.

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


# --- indexes ---
# Indexes over the few rows a query is about.


class PartialIndex(models.Index):
    """An index over the rows that match ``where``, where the database has partial indexes.

    MySQL and MariaDB have none: there the index covers all rows, and ``leading`` columns (what ``where``
    tests for equality) come first, so that the same query reads the same few entries. Each entry moves when
    a column of it changes, in every such index. So a column may have a stand-in there, by name in
    ``stand_ins``: a virtual column that is null in all other rows, whose entries then stay where they are.
    Queries must name the stand-in: see ``store.generated_columns``. ``values`` has, by stand-in,
    what it is instead of the real column where ``where`` is met. An index ascends in its stand-ins.

    An index that is ``part_of`` another one does not exist there: the other has its rows, too.
    """

    def __init__(
        self,
        *,
        fields: Any,
        name: str,
        where: models.Q,
        leading: tuple[str, ...] = ("status",),
        stand_ins: Mapping[str, str] | None = None,
        values: Mapping[str, Any] | None = None,
        part_of: str = "",
    ) -> None:
        super().__init__(fields=fields, name=name)
        self.where = where
        self.leading = tuple(leading)
        self.stand_ins = dict(stand_ins or {})
        self.values = dict(values or {})
        self.part_of = part_of

    def deconstruct(self) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
        """Return what a migration needs to rebuild this index."""
        path, args, kwargs = super().deconstruct()
        kwargs |= {"where": self.where, "leading": self.leading}
        more = {"stand_ins": self.stand_ins, "values": self.values, "part_of": self.part_of}
        return path, tuple(args), kwargs | {name: value for name, value in more.items() if value}

    def create_sql(
        self,
        model: type[models.Model],
        schema_editor: BaseDatabaseSchemaEditor,
        using: str = "",
        **kwargs: Any,
    ) -> Statement:
        """Return the statement that suits the database."""
        if self.is_elsewhere(schema_editor):
            return NOTHING
        if self.has_stand_ins(schema_editor):
            added = [f"ADD COLUMN {column}" for column in self.columns(model, schema_editor)]
            return altered(model, schema_editor, *added, f"ADD {self.key(schema_editor)}")
        return self.for_database(schema_editor).create_sql(model, schema_editor, using=using, **kwargs)

    def remove_sql(
        self, model: type[models.Model], schema_editor: BaseDatabaseSchemaEditor, **kwargs: Any
    ) -> Any:
        """Return the statement that undoes it."""
        if self.is_elsewhere(schema_editor):
            return NOTHING
        if self.has_stand_ins(schema_editor):
            quoted = schema_editor.quote_name
            columns = [f"DROP COLUMN {quoted(stand_in)}" for stand_in in self.stand_ins.values()]
            return altered(model, schema_editor, f"DROP INDEX {quoted(self.name)}", *columns)
        return super().remove_sql(model, schema_editor, **kwargs)

    def for_database(self, schema_editor: BaseDatabaseSchemaEditor) -> models.Index:
        """Return the plain Django index that this is on the editor's database, but for stand-ins."""
        if schema_editor.connection.features.supports_partial_indexes:
            return models.Index(fields=self.fields, name=self.name, condition=self.where)
        return models.Index(fields=[*self.leading, *self.fields], name=self.name)

    def is_elsewhere(self, schema_editor: BaseDatabaseSchemaEditor) -> bool:
        """Tell whether another index has its rows on the editor's database."""
        return bool(self.part_of) and not schema_editor.connection.features.supports_partial_indexes

    def has_stand_ins(self, schema_editor: BaseDatabaseSchemaEditor) -> bool:
        """Tell whether columns have stand-ins on the editor's database."""
        return bool(self.stand_ins) and not schema_editor.connection.features.supports_partial_indexes

    def columns(self, model: type[models.Model], schema_editor: BaseDatabaseSchemaEditor) -> Iterator[str]:
        """Return the definitions of the stand-ins."""
        for name, stand_in in self.stand_ins.items():
            value = self.values.get(stand_in) or models.Case(models.When(self.where, then=models.F(name)))
            is_ = expression_sql(value, model, schema_editor)
            type_ = type_of(model, name, schema_editor)
            yield f"{schema_editor.quote_name(stand_in)} {type_} GENERATED ALWAYS AS ({is_}) VIRTUAL"

    def key(self, schema_editor: BaseDatabaseSchemaEditor) -> str:
        """Return the definition of the index, on a database without partial ones."""
        quoted = schema_editor.quote_name
        ordered = self.for_database(schema_editor).fields_orders
        parts = [
            quoted(self.stand_ins[name]) if name in self.stand_ins else f"{quoted(name)} {order}".strip()
            for name, order in ordered
        ]
        return f"INDEX {quoted(self.name)} ({', '.join(parts)})"


#: What is carried out where there is nothing to do: Django runs whatever an index returns.
NOTHING = Statement("DO 0")


def altered(model: type[models.Model], schema_editor: BaseDatabaseSchemaEditor, *changes: str) -> Statement:
    """Return one ALTER TABLE with these changes."""
    table = Table(model._meta.db_table, schema_editor.quote_name)
    return Statement("ALTER TABLE %(table)s %(changes)s", table=table, changes=", ".join(changes))


def expression_sql(value: Any, model: type[models.Model], schema_editor: BaseDatabaseSchemaEditor) -> str:
    """Return an expression with its values in the text, as a definition needs it."""
    query = Query(model, alias_cols=False)
    compiler = query.get_compiler(connection=schema_editor.connection)
    sql, params = compiler.compile(value.resolve_expression(query))
    return str(sql % tuple(schema_editor.quote_value(value) for value in params))


def type_of(model: type[models.Model], name: str, schema_editor: BaseDatabaseSchemaEditor) -> str:
    """Return the type of a field's column, and how its texts are compared."""
    field: Any = model._meta.get_field(name)
    column = field.db_parameters(schema_editor.connection)
    collation = column.get("collation")
    return f"{column['type']} COLLATE {collation}" if collation else str(column["type"])


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
