"""Operations that leave a busy queue working."""

from typing import Any

from django.db import migrations


class AddIndexOnline(migrations.AddIndex):
    """Adds an index without keeping writers out: PostgreSQL must be asked for that, the others do it anyway.

    The migration must say ``atomic = False``.
    """

    atomic = False

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        """Add the index."""
        if schema_editor.connection.vendor != "postgresql":
            return super().database_forwards(app_label, schema_editor, from_state, to_state)
        model = to_state.apps.get_model(app_label, self.model_name)
        if self.allow_migrate_model(schema_editor.connection.alias, model):
            schema_editor.add_index(model, self.index, concurrently=True)
