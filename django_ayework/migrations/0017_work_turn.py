"""Lets a new work with a fairness label find the last turn of that label."""

from django.db import migrations
from django.db.models import Q

from django_ayework.migrations._online import AddIndexOnline
from django_ayework.models.fields import PartialIndex


class Migration(migrations.Migration):

    atomic = False  # PostgreSQL builds an index beside writers only outside a transaction

    dependencies = [
        ('django_ayework', '0016_work_ended_type'),
    ]

    operations = [
        AddIndexOnline(
            model_name='work',
            index=PartialIndex(
                fields=['fairness', 'queue', 'type', 'priority', 'sort_key'],
                name='ayework_turn',
                where=~Q(('fairness', '')) & Q(('status', 'pending')),
                leading=(),
                stand_ins={'fairness': 'turn_label', 'sort_key': 'turn'},
            ),
        ),
    ]
