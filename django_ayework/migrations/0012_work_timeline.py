"""Gives MySQL and MariaDB one index of all works that are not pending, of which fewer entries move."""

from django.db import migrations
from django.db.models import Case, F, Q, When

from django_ayework.migrations._online import ReplaceIndexOnline
from django_ayework.models.fields import PartialIndex

#: The one that takes over the rows of others comes before those.
INDEXES = [
    PartialIndex(
        fields=['status', 'ended_at'],
        name='ayework_ended',
        where=Q(('ended_at__isnull', False)),
        leading=(),
        stand_ins={'status': 'timeline_status', 'ended_at': 'timeline_at'},
        values={
            'timeline_status': Case(When(~Q(('status', 'pending')), then=F('status'))),
            'timeline_at': Case(
                When(status='scheduled', then=F('run_at')),
                When(status='blocked', then=F('deadline')),
                When(status='running', then=F('leased_until')),
                default=F('ended_at'),
            ),
        },
    ),
    PartialIndex(
        fields=['queue', 'type', '-priority', 'sort_key', 'run_at', 'id'],
        name='ayework_lane',
        where=Q(('status', 'pending')),
        leading=(),
        stand_ins={'queue': 'pending_in'},
    ),
    PartialIndex(
        fields=['run_at'], name='ayework_due', where=Q(('status', 'scheduled')), part_of='ayework_ended'
    ),
    PartialIndex(
        fields=['leased_until'], name='ayework_lapsed', where=Q(('status', 'running')), part_of='ayework_ended'
    ),
    PartialIndex(
        fields=['deadline'], name='ayework_overdue', where=Q(('status', 'blocked')), part_of='ayework_ended'
    ),
]


class Migration(migrations.Migration):

    atomic = False  # a table is altered beside its writers only outside a transaction

    dependencies = [
        ('django_ayework', '0011_work_stand_ins'),
    ]

    operations = [ReplaceIndexOnline(model_name='work', index=index) for index in INDEXES]
