from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('django_ayework', '0002_work_chain'),
    ]

    operations = [
        migrations.AddField(
            model_name='edge',
            name='chain',
            field=models.BooleanField(default=False),
        ),
    ]
