"""Gives MySQL and MariaDB one index of all works, so that a claim moves one entry and so does an end."""

from django.db import migrations
from django.db.models import Case, F, Q, When

from django_ayework.migrations._online import ReplaceIndexOnline
from django_ayework.models.fields import PartialIndex

#: The one that takes over the rows of others comes before those.
INDEXES = [
    PartialIndex(
        fields=['queue', 'type', '-priority', 'sort_key', 'run_at', 'id'],
        name='ayework_lane',
        where=Q(('status', 'pending')),
        stand_ins={
            'status': 'standing',
            'queue': 'pending_in',
            'type': 'pending_type',
            'priority': 'pending_rank',
            'sort_key': 'pending_sort_key',
            'run_at': 'moment',
        },
        values={
            'standing': F('status'),
            'pending_rank': Case(When(status='pending', then=-F('priority'))),
            'moment': Case(
                When(status__in=('pending', 'scheduled'), then=F('run_at')),
                When(status='blocked', then=F('deadline')),
                When(status='running', then=F('leased_until')),
                default=F('ended_at'),
            ),
        },
    ),
    PartialIndex(
        fields=['status', 'ended_at'],
        name='ayework_ended',
        where=Q(('ended_at__isnull', False)),
        leading=(),
        part_of='ayework_lane',
    ),
    PartialIndex(
        fields=['run_at'], name='ayework_due', where=Q(('status', 'scheduled')), part_of='ayework_lane'
    ),
    PartialIndex(
        fields=['leased_until'], name='ayework_lapsed', where=Q(('status', 'running')), part_of='ayework_lane'
    ),
    PartialIndex(
        fields=['deadline'], name='ayework_overdue', where=Q(('status', 'blocked')), part_of='ayework_lane'
    ),
]


class Migration(migrations.Migration):

    atomic = False  # a table is altered beside its writers only outside a transaction

    dependencies = [
        ('django_ayework', '0012_work_timeline'),
    ]

    operations = [ReplaceIndexOnline(model_name='work', index=index) for index in INDEXES]
