"""Lets works that have ended be pruned type by type."""

from django.db import migrations
from django.db.models import Q

from django_ayework.migrations._online import AddIndexOnline
from django_ayework.models.fields import PartialIndex


class Migration(migrations.Migration):

    atomic = False  # PostgreSQL builds an index beside writers only outside a transaction

    dependencies = [
        ('django_ayework', '0015_worker_trouble'),
    ]

    operations = [
        AddIndexOnline(
            model_name='work',
            index=PartialIndex(
                fields=['status', 'type', 'ended_at'],
                name='ayework_ended_type',
                where=Q(('ended_at__isnull', False)),
                leading=(),
                stand_ins={'status': 'ended_status'},
            ),
        ),
    ]
