"""Lets status and admin show which threads of a worker are stuck."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('django_ayework', '0014_work_blocked'),
    ]

    operations = [
        migrations.AddField(
            model_name='workerprocess',
            name='trouble',
            field=models.CharField(blank=True, db_default='', default='', max_length=500),
        ),
    ]
