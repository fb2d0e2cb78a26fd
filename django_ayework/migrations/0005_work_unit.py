import django_ayework.models.fields
import django_ayework.models.fields
from django.db import migrations, models

from django_ayework.migrations._online import AddIndexOnline


class Migration(migrations.Migration):

    atomic = False  # PostgreSQL builds an index beside writers only outside a transaction

    dependencies = [
        ('django_ayework', '0004_work_dedup_key'),
    ]

    operations = [
        migrations.AddField(
            model_name='work',
            name='sort_key',
            field=django_ayework.models.fields.IdentifierField(blank=True, db_default='', default='', max_length=190),
        ),
        migrations.AddField(
            model_name='work',
            name='unit',
            field=django_ayework.models.fields.IdentifierField(blank=True, max_length=190, null=True),
        ),
        AddIndexOnline(
            model_name='work',
            index=django_ayework.models.fields.PartialIndex(fields=['queue', 'type', '-priority', 'sort_key', 'run_at', 'id'], leading=('status',), name='ayework_lane', where=models.Q(('status', 'pending'))),
        ),
        AddIndexOnline(
            model_name='work',
            index=django_ayework.models.fields.PartialIndex(fields=['type', 'unit', 'ended_at'], leading=(), name='ayework_unit', where=models.Q(('unit__isnull', False))),
        ),
        migrations.RemoveIndex(
            model_name='work',
            name='ayework_claim',
        ),
    ]
