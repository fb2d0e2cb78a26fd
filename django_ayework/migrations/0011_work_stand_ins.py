"""Gives columns stand-ins in the indexes of MySQL and MariaDB, whose entries then move less often."""

from django.db import migrations, models

from django_ayework.migrations._online import ReplaceIndexOnline
from django_ayework.models.fields import PartialIndex

INDEXES = [
    PartialIndex(
        fields=['run_at'],
        name='ayework_due',
        where=models.Q(('status', 'scheduled')),
        leading=(),
        stand_ins={'run_at': 'due_at'},
    ),
    PartialIndex(
        fields=['leased_until'],
        name='ayework_lapsed',
        where=models.Q(('status', 'running')),
        leading=(),
    ),
    PartialIndex(
        fields=['deadline'],
        name='ayework_overdue',
        where=models.Q(('status', 'blocked')),
        leading=(),
        stand_ins={'deadline': 'overdue_at'},
    ),
    PartialIndex(
        fields=['status', 'ended_at'],
        name='ayework_ended',
        where=models.Q(('ended_at__isnull', False)),
        leading=(),
        stand_ins={'status': 'ended_as'},
    ),
    PartialIndex(
        fields=['dedup_type', 'dedup_key', 'ended_at', 'queued_at'],
        name='ayework_key',
        where=models.Q(('dedup_key__isnull', False)),
        leading=(),
        stand_ins={'ended_at': 'key_ended_at'},
    ),
    PartialIndex(
        fields=['type', 'unit', 'ended_at'],
        name='ayework_unit',
        where=models.Q(('unit__isnull', False)),
        leading=(),
        stand_ins={'ended_at': 'unit_ended_at'},
    ),
]


class Migration(migrations.Migration):

    atomic = False  # a table is altered beside its writers only outside a transaction

    dependencies = [
        ('django_ayework', '0010_edge_room'),
    ]

    operations = [ReplaceIndexOnline(model_name='work', index=index) for index in INDEXES]
