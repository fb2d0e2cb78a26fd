import django_ayework.models.fields
import django_ayework.models.fields
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('django_ayework', '0001_initial'),
    ]

    operations = [
        migrations.AddField(
            model_name='work',
            name='chain_id',
            field=django_ayework.models.fields.IdentifierField(blank=True, max_length=64, null=True),
        ),
        migrations.AddField(
            model_name='work',
            name='chain_index',
            field=models.IntegerField(default=0),
        ),
        migrations.AddConstraint(
            model_name='work',
            constraint=django_ayework.models.fields.PartialUnique(fields=('chain_id', 'chain_index'), name='ayework_chain', where=models.Q(('chain_id__isnull', False))),
        ),
    ]
