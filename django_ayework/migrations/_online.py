"""Operations that leave a busy queue working."""

from typing import Any

from django.db import OperationalError, migrations

from django_ayework.models.fields import altered

#: What MySQL and MariaDB call the errors; the last one is about columns and indexes.
DUPLICATE_COLUMN, DUPLICATE_INDEX, MISSING = 1060, 1061, 1091


class AddIndexOnline(migrations.AddIndex):
    """Adds an index without keeping writers out: PostgreSQL must be asked for that, the others do it anyway.

    The migration must say ``atomic = False``.
    """

    atomic = False

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        """Add the index, after the columns that MySQL and MariaDB would not add beside writers with it."""
        model = to_state.apps.get_model(app_label, self.model_name)
        if not self.allow_migrate_model(schema_editor.connection.alias, model):
            return
        index: Any = self.index
        if schema_editor.connection.vendor == "postgresql":
            schema_editor.add_index(model, index, concurrently=True)
        elif index.has_stand_ins(schema_editor):
            for column in index.columns(model, schema_editor):
                alter(model, schema_editor, f"ADD COLUMN {column}", unless=DUPLICATE_COLUMN)
            alter(model, schema_editor, f"ADD {index.key(schema_editor)}", unless=DUPLICATE_INDEX)
        else:
            super().database_forwards(app_label, schema_editor, from_state, to_state)


class ReplaceIndexOnline(migrations.AddIndex):
    """Puts another index in the place of one of the same name, where databases differ in what they make of it.

    Those with partial indexes have the same one before and after. The migration must say ``atomic = False``.
    """

    atomic = False

    def state_forwards(self, app_label: str, state: Any) -> None:
        """Replace the index."""
        state.remove_index(app_label, self.model_name_lower, self.index.name)
        state.add_index(app_label, self.model_name_lower, self.index)

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        """Replace the index, in statements that MySQL and MariaDB carry out beside writers.

        They add or drop virtual columns so, or replace an index, but not both at once. A stand-in that both
        indexes have stays as it is.
        """
        model = to_state.apps.get_model(app_label, self.model_name)
        is_same = schema_editor.connection.features.supports_partial_indexes
        if is_same or not self.allow_migrate_model(schema_editor.connection.alias, model):
            return
        former, index = self.index_in(from_state, app_label), self.index_in(to_state, app_label)
        quoted, drop = schema_editor.quote_name, f"DROP INDEX {schema_editor.quote_name(former.name)}"
        if former.is_elsewhere(schema_editor) and index.is_elsewhere(schema_editor):
            return
        for column in index.columns(model, schema_editor):
            alter(model, schema_editor, f"ADD COLUMN {column}", unless=DUPLICATE_COLUMN)
        if index.is_elsewhere(schema_editor):
            alter(model, schema_editor, drop, unless=MISSING)
        elif former.is_elsewhere(schema_editor):
            alter(model, schema_editor, f"ADD {index.key(schema_editor)}", unless=DUPLICATE_INDEX)
        else:
            alter(model, schema_editor, drop, f"ADD {index.key(schema_editor)}")
        for column in set(former.stand_ins.values()) - set(index.stand_ins.values()):
            alter(model, schema_editor, f"DROP COLUMN {quoted(column)}", unless=MISSING)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        """Put the former one back."""
        self.database_forwards(app_label, schema_editor, from_state, to_state)

    def index_in(self, state: Any, app_label: str) -> Any:
        """Return the index of the name, as it is in a state."""
        return state.models[app_label, self.model_name_lower].get_index_by_name(self.index.name)


def alter(model: Any, schema_editor: Any, *changes: str, unless: int | None = None) -> None:
    """Alter a model's table; let the error pass that says a run which was cut off had done this before.

    These databases undo no such statement, so the next run begins where that one was.
    """
    try:
        schema_editor.execute(altered(model, schema_editor, *changes), params=None)
    except OperationalError as error:
        if error.args[0] != unless:
            raise
