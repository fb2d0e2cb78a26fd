"""The tables, with a comment at each index and constraint that names its reader."""

from typing import Any

from django.db import migrations, models
from django.db.models import Q

from django_ayework.models.fields import IdentifierField, PartialIndex, PartialUnique, PayloadField


def leave_room_in_pages(apps: Any, schema_editor: Any) -> None:
    """Fill half of each page of edges on PostgreSQL.

    Every edge is written once more. With room in its page the new version touches no index (a HOT update).
    """
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute("ALTER TABLE django_ayework_edge SET (fillfactor = 50)")


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Group",
            fields=[
                ("id", IdentifierField(max_length=64, primary_key=True, serialize=False)),
                ("open", models.IntegerField(default=0)),
                ("total", models.IntegerField(default=0)),
                ("dead", models.IntegerField(default=0)),
                ("value", PayloadField(blank=True, null=True)),
                ("final", models.BooleanField(default=False)),
                ("done_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "verbose_name": "group",
                "verbose_name_plural": "groups",
            },
        ),
        migrations.CreateModel(
            name="StoreEntry",
            fields=[
                ("key", IdentifierField(max_length=190, primary_key=True, serialize=False)),
                ("value", PayloadField(blank=True)),
                # The index leads to what has expired.
                ("expires_at", models.DateTimeField(blank=True, db_index=True, null=True)),
            ],
            options={
                "verbose_name": "store entry",
                "verbose_name_plural": "store entries",
            },
        ),
        migrations.CreateModel(
            name="Attempt",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("work_id", IdentifierField(max_length=64)),
                ("number", models.IntegerField()),
                ("worker", IdentifierField(blank=True, max_length=64)),
                (
                    "outcome",
                    models.CharField(
                        choices=[
                            ("failed", "failed"),
                            ("died", "died"),
                            ("deferred", "deferred"),
                            ("lost", "lost"),
                            ("revoked", "revoked"),
                            ("success", "success"),
                        ],
                        max_length=8,
                    ),
                ),
                ("error", PayloadField(blank=True)),
                ("exception", models.CharField(blank=True, db_default="", default="", max_length=255)),
                ("traceback", PayloadField(blank=True)),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                ("ended_at", models.DateTimeField()),
            ],
            options={
                "verbose_name": "attempt",
                "verbose_name_plural": "attempts",
                "indexes": [
                    # The history of a work, in order.
                    models.Index(fields=["work_id", "number"], name="ayework_attempts"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Edge",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("waiter_id", IdentifierField(max_length=64)),
                ("watched_id", IdentifierField(max_length=64)),
                ("chain", models.BooleanField(default=False)),
                ("position", models.IntegerField()),
                ("outcome", models.CharField(blank=True, max_length=9)),
            ],
            options={
                "verbose_name": "edge",
                "verbose_name_plural": "edges",
                "indexes": [
                    # Settling: the waiters that watch what has ended.
                    models.Index(fields=["watched_id"], name="ayework_watchers"),
                    # Deciding a waiter: what it watches, in order.
                    models.Index(fields=["waiter_id", "position"], name="ayework_watched"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Schedule",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", IdentifierField(max_length=128, unique=True, verbose_name="name")),
                (
                    "origin",
                    models.CharField(
                        choices=[("code", "code"), ("admin", "admin")],
                        default="code",
                        max_length=5,
                        verbose_name="origin",
                    ),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[("cron", "cron expression"), ("every", "interval"), ("next", "function")],
                        max_length=5,
                        verbose_name="kind",
                    ),
                ),
                ("cron", models.CharField(blank=True, max_length=255, verbose_name="cron expression")),
                ("every", models.FloatField(blank=True, null=True, verbose_name="interval")),
                ("function", models.CharField(max_length=255, verbose_name="runs")),
                ("input", PayloadField(blank=True, verbose_name="input")),
                ("tz", models.CharField(max_length=64, verbose_name="time zone")),
                (
                    "overlap",
                    models.CharField(
                        choices=[("allow", "allow"), ("skip", "skip"), ("queue", "queue")],
                        default="allow",
                        max_length=5,
                        verbose_name="overlap",
                    ),
                ),
                (
                    "catch_up",
                    models.CharField(
                        choices=[("none", "none"), ("last", "last"), ("all", "all")],
                        default="last",
                        max_length=4,
                        verbose_name="catch up",
                    ),
                ),
                (
                    "dst",
                    models.CharField(
                        choices=[("skip", "skip"), ("shift", "shift")],
                        default="skip",
                        max_length=5,
                        verbose_name="missing hour",
                    ),
                ),
                ("jitter", models.FloatField(default=0.0, verbose_name="jitter")),
                ("start_at", models.DateTimeField(blank=True, null=True, verbose_name="start")),
                ("end_at", models.DateTimeField(blank=True, null=True, verbose_name="end")),
                ("enabled", models.BooleanField(default=True, verbose_name="enabled")),
                ("paused", models.BooleanField(default=False, verbose_name="paused")),
                ("next_at", models.DateTimeField(blank=True, null=True, verbose_name="next firing")),
                ("due_at", models.DateTimeField(blank=True, null=True)),
                ("last_at", models.DateTimeField(blank=True, null=True)),
                ("last_fired_at", models.DateTimeField(blank=True, null=True, verbose_name="last fired")),
                ("last_group", IdentifierField(blank=True, max_length=64)),
                ("queued", models.IntegerField(default=0, verbose_name="queued")),
                ("failures", models.IntegerField(default=0, verbose_name="failures")),
                ("error", PayloadField(blank=True, verbose_name="error")),
            ],
            options={
                "verbose_name": "schedule",
                "verbose_name_plural": "schedules",
                "indexes": [
                    # The scheduler: what is due next.
                    PartialIndex(
                        fields=["due_at"], leading=(), name="ayework_schedules", where=Q(due_at__isnull=False)
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Waiter",
            fields=[
                ("work_id", IdentifierField(max_length=64, primary_key=True, serialize=False)),
                ("condition", PayloadField()),
                ("on_unmet", models.CharField(default="dead", max_length=4)),
                ("total", models.IntegerField(default=0)),
                ("succeeded", models.IntegerField(default=0)),
                ("missed", models.IntegerField(default=0)),
                ("recheck", models.BooleanField(default=False)),
            ],
            options={
                "verbose_name": "waiter",
                "verbose_name_plural": "waiters",
                "indexes": [
                    # The sweep: waiters to look at again after a commit. Nearly always empty.
                    PartialIndex(
                        fields=["work_id"],
                        leading=("recheck",),
                        name="ayework_recheck",
                        where=Q(recheck=True),
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Work",
            fields=[
                ("id", IdentifierField(max_length=64, primary_key=True, serialize=False)),
                ("type", IdentifierField(max_length=128)),
                ("queue", IdentifierField(max_length=64)),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("blocked", "blocked"),
                            ("scheduled", "scheduled"),
                            ("pending", "pending"),
                            ("running", "running"),
                            ("success", "success"),
                            ("dead", "dead"),
                            ("cancelled", "cancelled"),
                        ],
                        max_length=9,
                    ),
                ),
                (
                    "reason",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("exhausted", "exhausted"),
                            ("aborted", "aborted"),
                            ("expired", "expired"),
                            ("unsatisfiable", "unsatisfiable"),
                            ("unknown_type", "unknown type"),
                            ("bad_input", "bad input"),
                        ],
                        max_length=13,
                    ),
                ),
                ("priority", models.IntegerField(default=0)),
                ("fairness", IdentifierField(blank=True, max_length=64)),
                ("group_id", IdentifierField(blank=True, max_length=64, null=True)),
                ("parent_id", IdentifierField(blank=True, max_length=64, null=True)),
                ("chain_id", IdentifierField(blank=True, max_length=64, null=True)),
                ("chain_index", models.IntegerField(default=0)),
                ("about_type", IdentifierField(blank=True, max_length=128, null=True)),
                ("about_id", IdentifierField(blank=True, max_length=64, null=True)),
                ("input", PayloadField()),
                ("options", PayloadField()),
                ("result", PayloadField(blank=True, null=True)),
                ("error", PayloadField(blank=True)),
                ("cause", IdentifierField(blank=True, db_default="", default="", max_length=16)),
                ("progress", PayloadField(blank=True, null=True)),
                ("attempt", models.IntegerField(default=0)),
                ("delivery", models.IntegerField(default=0)),
                ("begun_delivery", models.IntegerField(db_default=0, default=0)),
                ("worker", IdentifierField(blank=True, max_length=64, null=True)),
                ("leased_until", models.DateTimeField(blank=True, null=True)),
                ("deadline", models.DateTimeField(blank=True, null=True)),
                ("queued_at", models.DateTimeField()),
                ("run_at", models.DateTimeField()),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                ("completed_by", IdentifierField(blank=True, max_length=64, null=True)),
                ("dedup_key", IdentifierField(blank=True, max_length=190, null=True)),
                ("dedup_type", IdentifierField(blank=True, max_length=128, null=True)),
                ("unit", IdentifierField(blank=True, max_length=190, null=True)),
                ("sort_key", IdentifierField(blank=True, default="", max_length=190)),
            ],
            options={
                "verbose_name": "work",
                "verbose_name_plural": "works",
                "permissions": (
                    ("retry_work", "Can retry works"),
                    ("cancel_work", "Can cancel works"),
                    ("edit_input_work", "Can edit the input of works"),
                    ("bulk_work", "Can act on all works that match a filter"),
                ),
                "indexes": [
                    # Claims: the pending works of a queue and a type, in the order of claiming.
                    PartialIndex(
                        fields=["queue", "type", "-priority", "sort_key", "run_at", "id"],
                        leading=("status",),
                        name="ayework_lane",
                        where=Q(status="pending"),
                    ),
                    # Enqueue with a fairness label: the last turn of that label in a lane.
                    PartialIndex(
                        fields=["fairness", "queue", "type", "priority", "sort_key"],
                        leading=("status",),
                        name="ayework_turn",
                        where=~Q(fairness="") & Q(status="pending"),
                    ),
                    # Staging: scheduled works that are due.
                    PartialIndex(
                        fields=["run_at"],
                        leading=("status",),
                        name="ayework_due",
                        where=Q(status="scheduled"),
                    ),
                    # Reclaiming: leases that have lapsed. Only running works are leased, so status need not lead.
                    PartialIndex(
                        fields=["leased_until"], leading=(), name="ayework_lapsed", where=Q(status="running")
                    ),
                    # Expiring gates, and the sweep, which reads blocked works page by page.
                    PartialIndex(
                        fields=["deadline", "id"],
                        leading=("status",),
                        name="ayework_blocked",
                        where=Q(status="blocked"),
                    ),
                    # Retention: the longest ended works of each type.
                    PartialIndex(
                        fields=["status", "type", "ended_at"],
                        leading=(),
                        name="ayework_ended",
                        where=Q(ended_at__isnull=False),
                    ),
                    # Dead letters, by the time of their death.
                    PartialIndex(
                        fields=["ended_at", "id"],
                        leading=("status",),
                        name="ayework_dead",
                        where=Q(status="dead"),
                    ),
                    # Dead letters by cause: counts, the first and the last of each.
                    PartialIndex(
                        fields=["type", "reason", "cause", "ended_at"],
                        leading=("status",),
                        name="ayework_cause",
                        where=Q(status="dead"),
                    ),
                    # The list of works, the newest first. Ids need not be in the order of time.
                    models.Index(fields=["queued_at", "id"], name="ayework_queued"),
                    # The works of a group.
                    PartialIndex(
                        fields=["group_id"], leading=(), name="ayework_group", where=Q(group_id__isnull=False)
                    ),
                    # The works about an object of the project.
                    PartialIndex(
                        fields=["about_type", "about_id"],
                        leading=(),
                        name="ayework_about",
                        where=Q(about_type__isnull=False),
                    ),
                    # Deduplication: the works of a key, those that have not ended first.
                    PartialIndex(
                        fields=["dedup_type", "dedup_key", "ended_at", "queued_at"],
                        leading=(),
                        name="ayework_key",
                        where=Q(dedup_key__isnull=False),
                    ),
                    # The live work of a unit.
                    PartialIndex(
                        fields=["type", "unit", "ended_at"],
                        leading=(),
                        name="ayework_unit",
                        where=Q(unit__isnull=False),
                    ),
                ],
                "constraints": [
                    # A step of a chain has one continuation. Its index leads to the steps of a chain, in order.
                    PartialUnique(
                        fields=("chain_id", "chain_index"),
                        name="ayework_chain",
                        where=Q(chain_id__isnull=False),
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="DeadLetter",
            fields=[],
            options={
                "verbose_name": "dead letter",
                "verbose_name_plural": "dead letters",
                "proxy": True,
                "indexes": [],
                "constraints": [],
            },
            bases=("django_ayework.work",),
        ),
        migrations.CreateModel(
            name="WorkControl",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "scope",
                    models.CharField(
                        choices=[("type", "type"), ("queue", "queue")], max_length=5, verbose_name="scope"
                    ),
                ),
                ("name", IdentifierField(max_length=128, verbose_name="name")),
                ("paused", models.BooleanField(default=False, verbose_name="paused")),
                ("priority", models.IntegerField(blank=True, null=True, verbose_name="priority")),
                ("weight", models.PositiveIntegerField(blank=True, null=True, verbose_name="weight")),
                (
                    "max_running",
                    models.PositiveIntegerField(blank=True, null=True, verbose_name="running at most"),
                ),
                (
                    "max_claimed",
                    models.PositiveIntegerField(blank=True, null=True, verbose_name="claimed at most"),
                ),
                ("continuous", models.BooleanField(blank=True, null=True, verbose_name="continuous")),
                ("interval", models.FloatField(blank=True, null=True, verbose_name="interval")),
                ("next_at", models.DateTimeField(blank=True, null=True, verbose_name="next at")),
                ("version", models.IntegerField(default=1)),
                ("changed_at", models.DateTimeField(verbose_name="changed at")),
            ],
            options={
                "verbose_name": "control",
                "verbose_name_plural": "controls",
                "constraints": [
                    # One row for each type or queue; also the lock under which the limit of a type is counted.
                    models.UniqueConstraint(fields=("scope", "name"), name="ayework_control"),
                ],
            },
        ),
        migrations.CreateModel(
            name="WorkerProcess",
            fields=[
                ("id", IdentifierField(max_length=64, primary_key=True, serialize=False)),
                ("name", IdentifierField(blank=True, max_length=64)),
                ("host", models.CharField(max_length=255)),
                ("pid", models.IntegerField()),
                ("queues", models.TextField(blank=True)),
                ("concurrency", models.IntegerField()),
                ("running", models.IntegerField(default=0)),
                ("started_at", models.DateTimeField()),
                ("seen_at", models.DateTimeField()),
                ("stopped_at", models.DateTimeField(blank=True, null=True)),
                ("trouble", models.CharField(blank=True, default="", max_length=500)),
                ("version", models.CharField(blank=True, default="", max_length=40)),
                (
                    "command",
                    models.CharField(
                        blank=True,
                        choices=[("quiet", "quiet"), ("resume", "resume"), ("stop", "stop")],
                        default="",
                        max_length=6,
                        verbose_name="command",
                    ),
                ),
                ("quiet", models.BooleanField(default=False, verbose_name="quiet")),
            ],
            options={
                "verbose_name": "worker process",
                "verbose_name_plural": "worker processes",
                "indexes": [
                    # Workers that have not stopped. Heartbeats write no column of it.
                    PartialIndex(
                        fields=["started_at"],
                        leading=("stopped_at",),
                        name="ayework_workers",
                        where=Q(stopped_at__isnull=True),
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Firing",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("occurrence", models.DateTimeField(verbose_name="occurrence")),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("fired", "fired"),
                            ("skipped", "skipped"),
                            ("missed", "missed"),
                            ("queued", "queued"),
                            ("failed", "failed"),
                        ],
                        max_length=7,
                        verbose_name="status",
                    ),
                ),
                ("number", models.IntegerField(default=1, verbose_name="occurrences")),
                ("work_id", IdentifierField(blank=True, max_length=64, verbose_name="work")),
                ("group_id", IdentifierField(blank=True, max_length=64, verbose_name="group")),
                ("error", PayloadField(blank=True, verbose_name="error")),
                # The index leads to old history.
                ("made_at", models.DateTimeField(db_index=True, verbose_name="at")),
                (
                    "schedule",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=models.CASCADE,
                        related_name="firings",
                        to="django_ayework.schedule",
                    ),
                ),
            ],
            options={
                "verbose_name": "firing",
                "verbose_name_plural": "firings",
                "constraints": [
                    # An occurrence fires once in the whole fleet. Its index leads to the history of a schedule.
                    models.UniqueConstraint(fields=("schedule", "occurrence"), name="ayework_firing"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Gate",
            fields=[],
            options={
                "verbose_name": "gate",
                "verbose_name_plural": "gates",
                "proxy": True,
                "indexes": [],
                "constraints": [],
            },
            bases=("django_ayework.work",),
        ),
        migrations.CreateModel(
            name="InputRevision",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("work_id", IdentifierField(max_length=64)),
                ("input", PayloadField()),
                ("replaced_at", models.DateTimeField()),
                ("replaced_by", models.CharField(blank=True, max_length=150)),
            ],
            options={
                "verbose_name": "input revision",
                "verbose_name_plural": "input revisions",
                "indexes": [
                    # The page of a work: its former inputs, in order.
                    models.Index(fields=["work_id", "id"], name="ayework_revisions"),
                ],
            },
        ),
        migrations.CreateModel(
            name="BulkAction",
            fields=[
                ("id", IdentifierField(max_length=64, primary_key=True, serialize=False)),
                ("action", models.CharField(max_length=40, verbose_name="action")),
                ("parameters", PayloadField(blank=True, default="{}", verbose_name="parameters")),
                ("filter", PayloadField(verbose_name="filter")),
                ("until", models.DateTimeField(verbose_name="until")),
                (
                    "per_minute",
                    models.PositiveIntegerField(blank=True, null=True, verbose_name="per minute"),
                ),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("running", "running"),
                            ("stopped", "stopped"),
                            ("done", "done"),
                            ("failed", "failed"),
                        ],
                        default="running",
                        max_length=7,
                        verbose_name="status",
                    ),
                ),
                ("expected", models.IntegerField(default=0, verbose_name="expected")),
                ("done", models.IntegerField(default=0, verbose_name="done")),
                ("refused", models.IntegerField(default=0, verbose_name="refused")),
                ("cursor", PayloadField(blank=True, default="")),
                ("report", PayloadField(blank=True, default="[]")),
                ("next_at", models.DateTimeField(blank=True, null=True)),
                ("created_at", models.DateTimeField(verbose_name="created at")),
                ("created_by", models.CharField(blank=True, max_length=150, verbose_name="created by")),
                ("ended_at", models.DateTimeField(blank=True, null=True, verbose_name="ended at")),
            ],
            options={
                "verbose_name": "bulk action",
                "verbose_name_plural": "bulk actions",
                "indexes": [
                    # Maintenance: bulk actions whose next page is due. Nearly always empty.
                    PartialIndex(
                        fields=["next_at"], leading=(), name="ayework_bulk", where=Q(next_at__isnull=False)
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Throughput",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("seconds", models.IntegerField()),
                ("start", models.DateTimeField()),
                ("type", IdentifierField(max_length=128)),
                ("queue", IdentifierField(max_length=64)),
                ("succeeded", models.IntegerField(default=0)),
                ("failed", models.IntegerField(default=0)),
                ("dead", models.IntegerField(default=0)),
                ("duration", models.FloatField(default=0.0)),
            ],
            options={
                "verbose_name": "throughput",
                "verbose_name_plural": "throughput",
                "constraints": [
                    # Workers add to the row of a span. Its index leads to the figures of the last hour and day.
                    models.UniqueConstraint(
                        fields=("seconds", "start", "type", "queue"), name="ayework_throughput"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Overview",
            fields=[],
            options={
                "verbose_name": "overview",
                "verbose_name_plural": "overview",
                "proxy": True,
                "default_permissions": ("view",),
                "indexes": [],
                "constraints": [],
            },
            bases=("django_ayework.workerprocess",),
        ),
        migrations.RunPython(leave_room_in_pages, migrations.RunPython.noop),
    ]
