import django_ayework.models.fields
import django_ayework.models.fields
from django.db import migrations, models

from django_ayework.migrations._online import AddIndexOnline


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
            index=django_ayework.models.fields.PartialIndex(fields=['type', 'dedup_key', 'ended_at', 'queued_at'], leading=(), name='ayework_dedup', where=models.Q(('dedup_key__isnull', False))),
        ),
    ]
