import django_ayework.models.fields
import django_ayework.models.fields
from django.db import migrations, models
from django.db.models import F

from django_ayework.migrations._online import AddIndexOnline


def name_types(apps, schema_editor):
    """Works queued with a key before were found by their own type."""
    works = apps.get_model('django_ayework', 'Work')._base_manager.using(schema_editor.connection.alias)
    works.filter(dedup_key__isnull=False, dedup_type=None).update(dedup_type=F('type'))


class Migration(migrations.Migration):

    atomic = False  # PostgreSQL builds an index beside writers only outside a transaction

    dependencies = [
        ('django_ayework', '0007_worker_process_index'),
    ]

    operations = [
        migrations.AddField(
            model_name='work',
            name='dedup_type',
            field=django_ayework.models.fields.IdentifierField(blank=True, max_length=128, null=True),
        ),
        migrations.RunPython(name_types, migrations.RunPython.noop),
        AddIndexOnline(
            model_name='work',
            index=django_ayework.models.fields.PartialIndex(fields=['dedup_type', 'dedup_key', 'ended_at', 'queued_at'], leading=(), name='ayework_key', where=models.Q(('dedup_key__isnull', False))),
        ),
        migrations.RemoveIndex(
            model_name='work',
            name='ayework_dedup',
        ),
    ]
