import django_ayework.models.fields
import django_ayework.models.indexes
from django.db import migrations, models


class AddIndexOnline(migrations.AddIndex):
    """Adds an index without keeping writers out: PostgreSQL must be asked for that, the others do it anyway."""

    atomic = False

    def database_forwards(self, app_label, schema_editor, from_state, to_state):
        if schema_editor.connection.vendor != "postgresql":
            return super().database_forwards(app_label, schema_editor, from_state, to_state)
        model = to_state.apps.get_model(app_label, self.model_name)
        if self.allow_migrate_model(schema_editor.connection.alias, model):
            schema_editor.add_index(model, self.index, concurrently=True)


class Migration(migrations.Migration):

    atomic = False  # PostgreSQL builds an index beside writers only outside a transaction

    dependencies = [
        ('django_ayework', '0003_edge_chain'),
    ]

    operations = [
        migrations.AddField(
            model_name='work',
            name='dedup_key',
            field=django_ayework.models.fields.IdentifierField(blank=True, max_length=190, null=True),
        ),
        AddIndexOnline(
            model_name='work',
            index=django_ayework.models.indexes.PartialIndex(fields=['type', 'dedup_key', 'ended_at', 'queued_at'], leading=(), name='ayework_dedup', where=models.Q(('dedup_key__isnull', False))),
        ),
    ]
