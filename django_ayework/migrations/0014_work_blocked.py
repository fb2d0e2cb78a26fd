"""Lets the sweep read blocked works page by page."""

from django.db import migrations
from django.db.models import Q

from django_ayework.migrations._online import AddIndexOnline
from django_ayework.models.fields import PartialIndex


class Migration(migrations.Migration):

    atomic = False  # PostgreSQL builds an index beside writers only outside a transaction

    dependencies = [
        ('django_ayework', '0013_work_standing'),
    ]

    operations = [
        AddIndexOnline(
            model_name='work',
            index=PartialIndex(
                fields=['deadline', 'id'],
                name='ayework_blocked',
                where=Q(('status', 'blocked')),
                part_of='ayework_lane',
            ),
        ),
        migrations.RemoveIndex(model_name='work', name='ayework_overdue'),
    ]
