import django_ayework.models.fields
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('django_ayework', '0006_work_control'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='workerprocess',
            index=django_ayework.models.fields.PartialIndex(fields=['started_at'], leading=('stopped_at',), name='ayework_workers', where=models.Q(('stopped_at__isnull', True))),
        ),
    ]
