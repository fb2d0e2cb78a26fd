import django_ayework.models.fields
import django_ayework.models.fields
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='Group',
            fields=[
                ('id', django_ayework.models.fields.IdentifierField(max_length=64, primary_key=True, serialize=False)),
                ('open', models.IntegerField(default=0)),
                ('total', models.IntegerField(default=0)),
                ('dead', models.IntegerField(default=0)),
                ('value', django_ayework.models.fields.PayloadField(blank=True, null=True)),
                ('final', models.BooleanField(default=False)),
                ('done_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'verbose_name': 'group',
                'verbose_name_plural': 'groups',
            },
        ),
        migrations.CreateModel(
            name='StoreEntry',
            fields=[
                ('key', django_ayework.models.fields.IdentifierField(max_length=190, primary_key=True, serialize=False)),
                ('value', django_ayework.models.fields.PayloadField(blank=True)),
                ('expires_at', models.DateTimeField(blank=True, db_index=True, null=True)),
            ],
            options={
                'verbose_name': 'store entry',
                'verbose_name_plural': 'store entries',
            },
        ),
        migrations.CreateModel(
            name='WorkerProcess',
            fields=[
                ('id', django_ayework.models.fields.IdentifierField(max_length=64, primary_key=True, serialize=False)),
                ('name', django_ayework.models.fields.IdentifierField(blank=True, max_length=64)),
                ('host', models.CharField(max_length=255)),
                ('pid', models.IntegerField()),
                ('queues', models.TextField(blank=True)),
                ('concurrency', models.IntegerField()),
                ('running', models.IntegerField(default=0)),
                ('started_at', models.DateTimeField()),
                ('seen_at', models.DateTimeField()),
                ('stopped_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'verbose_name': 'worker process',
                'verbose_name_plural': 'worker processes',
            },
        ),
        migrations.CreateModel(
            name='Attempt',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('work_id', django_ayework.models.fields.IdentifierField(max_length=64)),
                ('number', models.IntegerField()),
                ('worker', django_ayework.models.fields.IdentifierField(blank=True, max_length=64)),
                ('outcome', models.CharField(choices=[('failed', 'failed'), ('died', 'died'), ('deferred', 'deferred'), ('lost', 'lost')], max_length=8)),
                ('error', django_ayework.models.fields.PayloadField(blank=True)),
                ('traceback', django_ayework.models.fields.PayloadField(blank=True)),
                ('started_at', models.DateTimeField(blank=True, null=True)),
                ('ended_at', models.DateTimeField()),
            ],
            options={
                'verbose_name': 'attempt',
                'verbose_name_plural': 'attempts',
                'indexes': [models.Index(fields=['work_id', 'number'], name='ayework_attempts')],
            },
        ),
        migrations.CreateModel(
            name='Edge',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('waiter_id', django_ayework.models.fields.IdentifierField(max_length=64)),
                ('watched_id', django_ayework.models.fields.IdentifierField(max_length=64)),
                ('position', models.IntegerField()),
                ('outcome', models.CharField(blank=True, max_length=9)),
            ],
            options={
                'verbose_name': 'edge',
                'verbose_name_plural': 'edges',
                'indexes': [models.Index(fields=['watched_id'], name='ayework_watchers'), models.Index(fields=['waiter_id', 'position'], name='ayework_watched')],
            },
        ),
        migrations.CreateModel(
            name='Waiter',
            fields=[
                ('work_id', django_ayework.models.fields.IdentifierField(max_length=64, primary_key=True, serialize=False)),
                ('condition', django_ayework.models.fields.PayloadField()),
                ('on_unmet', models.CharField(default='dead', max_length=4)),
                ('total', models.IntegerField(default=0)),
                ('succeeded', models.IntegerField(default=0)),
                ('missed', models.IntegerField(default=0)),
                ('recheck', models.BooleanField(default=False)),
            ],
            options={
                'verbose_name': 'waiter',
                'verbose_name_plural': 'waiters',
                'indexes': [django_ayework.models.fields.PartialIndex(fields=['work_id'], leading=('recheck',), name='ayework_recheck', where=models.Q(('recheck', True)))],
            },
        ),
        migrations.CreateModel(
            name='Work',
            fields=[
                ('id', django_ayework.models.fields.IdentifierField(max_length=64, primary_key=True, serialize=False)),
                ('type', django_ayework.models.fields.IdentifierField(max_length=128)),
                ('queue', django_ayework.models.fields.IdentifierField(max_length=64)),
                ('status', models.CharField(choices=[('blocked', 'blocked'), ('scheduled', 'scheduled'), ('pending', 'pending'), ('running', 'running'), ('success', 'success'), ('dead', 'dead'), ('cancelled', 'cancelled')], max_length=9)),
                ('reason', models.CharField(blank=True, choices=[('exhausted', 'exhausted'), ('aborted', 'aborted'), ('expired', 'expired'), ('unsatisfiable', 'unsatisfiable'), ('unknown_type', 'unknown type'), ('bad_input', 'bad input')], max_length=13)),
                ('priority', models.IntegerField(default=0)),
                ('fairness', django_ayework.models.fields.IdentifierField(blank=True, max_length=64)),
                ('group_id', django_ayework.models.fields.IdentifierField(blank=True, max_length=64, null=True)),
                ('parent_id', django_ayework.models.fields.IdentifierField(blank=True, max_length=64, null=True)),
                ('about_type', django_ayework.models.fields.IdentifierField(blank=True, max_length=128, null=True)),
                ('about_id', django_ayework.models.fields.IdentifierField(blank=True, max_length=64, null=True)),
                ('input', django_ayework.models.fields.PayloadField()),
                ('options', django_ayework.models.fields.PayloadField()),
                ('result', django_ayework.models.fields.PayloadField(blank=True, null=True)),
                ('error', django_ayework.models.fields.PayloadField(blank=True)),
                ('progress', django_ayework.models.fields.PayloadField(blank=True, null=True)),
                ('attempt', models.IntegerField(default=0)),
                ('delivery', models.IntegerField(default=0)),
                ('worker', django_ayework.models.fields.IdentifierField(blank=True, max_length=64, null=True)),
                ('leased_until', models.DateTimeField(blank=True, null=True)),
                ('deadline', models.DateTimeField(blank=True, null=True)),
                ('queued_at', models.DateTimeField()),
                ('run_at', models.DateTimeField()),
                ('started_at', models.DateTimeField(blank=True, null=True)),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
                ('completed_by', django_ayework.models.fields.IdentifierField(blank=True, max_length=64, null=True)),
            ],
            options={
                'verbose_name': 'work',
                'verbose_name_plural': 'works',
                'indexes': [django_ayework.models.fields.PartialIndex(fields=['queue', '-priority', 'run_at', 'id'], leading=('status',), name='ayework_claim', where=models.Q(('status', 'pending'))), django_ayework.models.fields.PartialIndex(fields=['run_at'], leading=('status',), name='ayework_due', where=models.Q(('status', 'scheduled'))), django_ayework.models.fields.PartialIndex(fields=['leased_until'], leading=('status',), name='ayework_lapsed', where=models.Q(('status', 'running'))), django_ayework.models.fields.PartialIndex(fields=['deadline'], leading=('status',), name='ayework_overdue', where=models.Q(('status', 'blocked'))), django_ayework.models.fields.PartialIndex(fields=['status', 'ended_at'], leading=(), name='ayework_ended', where=models.Q(('ended_at__isnull', False))), django_ayework.models.fields.PartialIndex(fields=['group_id'], leading=(), name='ayework_group', where=models.Q(('group_id__isnull', False))), django_ayework.models.fields.PartialIndex(fields=['about_type', 'about_id'], leading=(), name='ayework_about', where=models.Q(('about_type__isnull', False)))],
            },
        ),
        migrations.CreateModel(
            name='DeadLetter',
            fields=[
            ],
            options={
                'verbose_name': 'dead letter',
                'verbose_name_plural': 'dead letters',
                'proxy': True,
                'indexes': [],
                'constraints': [],
            },
            bases=('django_ayework.work',),
        ),
    ]
