"""Schedules and their occurrences; controls; worker processes; keys with an end."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from django_ayework.models.fields import IdentifierField, PartialIndex, PayloadField

ORIGIN_CHOICES = [("code", _("code")), ("admin", _("admin"))]
KIND_CHOICES = [("cron", _("cron expression")), ("every", _("interval")), ("next", _("function"))]
OVERLAP_CHOICES = [("allow", _("allow")), ("skip", _("skip")), ("queue", pgettext_lazy("overlap", "queue"))]
CATCH_UP_CHOICES = [("none", _("none")), ("last", _("last")), ("all", _("all"))]
DST_CHOICES = [("skip", _("skip")), ("shift", _("shift"))]
FIRING_CHOICES = [
    ("fired", _("fired")),
    ("skipped", _("skipped")),
    ("missed", _("missed")),
    ("queued", _("queued")),
    ("failed", _("failed")),
]


class Schedule(models.Model):
    """A schedule. Its row is the lock under which each occurrence is fired.

    ``next_at`` is the next occurrence, null until a schedule's function has returned one. ``due_at`` is the
    moment of the next check: ``next_at``, or later by a jitter or a back-off; null for no check.
    """

    name = IdentifierField(_("name"), max_length=128, unique=True)
    origin = models.CharField(_("origin"), max_length=5, choices=ORIGIN_CHOICES, default="code")
    kind = models.CharField(_("kind"), max_length=5, choices=KIND_CHOICES)
    cron = models.CharField(_("cron expression"), max_length=255, blank=True)
    every = models.FloatField(_("interval"), null=True, blank=True)  # seconds
    function = models.CharField(_("runs"), max_length=255)  # a type of work, or a function with its module
    input = PayloadField(_("input"), blank=True)  # of the type, when it was made in the admin
    tz = models.CharField(_("time zone"), max_length=64)
    overlap = models.CharField(_("overlap"), max_length=5, choices=OVERLAP_CHOICES, default="allow")
    catch_up = models.CharField(_("catch up"), max_length=4, choices=CATCH_UP_CHOICES, default="last")
    dst = models.CharField(_("missing hour"), max_length=5, choices=DST_CHOICES, default="skip")
    jitter = models.FloatField(_("jitter"), default=0.0)  # seconds
    start_at = models.DateTimeField(_("start"), null=True, blank=True)
    end_at = models.DateTimeField(_("end"), null=True, blank=True)
    enabled = models.BooleanField(_("enabled"), default=True)  # not so once its declaration is gone
    paused = models.BooleanField(_("paused"), default=False)
    next_at = models.DateTimeField(_("next firing"), null=True, blank=True)
    due_at = models.DateTimeField(null=True, blank=True)
    last_at = models.DateTimeField(null=True, blank=True)  # nothing until then is dealt with again
    last_fired_at = models.DateTimeField(_("last fired"), null=True, blank=True)
    last_group = IdentifierField(max_length=64, blank=True)  # of the works of the last firing
    queued = models.IntegerField(_("queued"), default=0)  # firings that wait for the works of the one before
    failures = models.IntegerField(_("failures"), default=0)  # in a row
    error = PayloadField(_("error"), blank=True)  # of the last try, while it fails

    class Meta:
        """A tick reads due schedules by the index, the soonest first."""

        verbose_name = _("schedule")
        verbose_name_plural = _("schedules")
        indexes = (
            PartialIndex(
                fields=["due_at"], name="ayework_schedules", where=Q(due_at__isnull=False), leading=()
            ),
        )

    def __str__(self) -> str:
        return str(self.name)


class Firing(models.Model):
    """The record of an occurrence; there is one per schedule and occurrence.

    A missed firing represents ``number`` consecutive occurrences; ``occurrence`` is the first of them.
    """

    schedule = models.ForeignKey(Schedule, on_delete=models.CASCADE, db_index=False, related_name="firings")
    occurrence = models.DateTimeField(_("occurrence"))
    status = models.CharField(_("status"), max_length=7, choices=FIRING_CHOICES)
    number = models.IntegerField(_("occurrences"), default=1)
    work_id = IdentifierField(_("work"), max_length=64, blank=True)
    group_id = IdentifierField(_("group"), max_length=64, blank=True)
    error = PayloadField(_("error"), blank=True)
    made_at = models.DateTimeField(_("at"), db_index=True)

    class Meta:
        """The constraint is what makes a firing happen once; its index is what the history reads."""

        verbose_name = _("firing")
        verbose_name_plural = _("firings")
        constraints = (models.UniqueConstraint(fields=["schedule", "occurrence"], name="ayework_firing"),)

    def __str__(self) -> str:
        return f"{self.occurrence:%Y-%m-%d %H:%M:%S} {self.status}"


# Decisions of operators at run time about a type or a queue.

SCOPE_CHOICES = [("type", _("type")), ("queue", _("queue"))]


class WorkControl(models.Model):
    """One row per type or queue that is controlled. A null column means the declared value.

    The row of a type is also the lock under which its limit is counted.
    """

    scope = models.CharField(_("scope"), max_length=5, choices=SCOPE_CHOICES)
    name = IdentifierField(_("name"), max_length=128)
    paused = models.BooleanField(_("paused"), default=False)
    # Of a type: larger is served first, whatever the weights.
    priority = models.IntegerField(_("priority"), null=True, blank=True)
    weight = models.PositiveIntegerField(_("weight"), null=True, blank=True)
    max_running = models.PositiveIntegerField(_("running at most"), null=True, blank=True)  # 0: no limit
    max_claimed = models.PositiveIntegerField(_("claimed at most"), null=True, blank=True)  # 0: no limit
    continuous = models.BooleanField(_("continuous"), null=True, blank=True)
    interval = models.FloatField(_("interval"), null=True, blank=True)  # seconds
    next_at = models.DateTimeField(_("next at"), null=True, blank=True)  # of a continuous type
    version = models.IntegerField(default=1)  # grows with every change; workers read the rows anew then
    changed_at = models.DateTimeField(_("changed at"))

    class Meta:
        """A handful of rows; read as a whole."""

        verbose_name = _("control")
        verbose_name_plural = _("controls")
        constraints = (models.UniqueConstraint(fields=["scope", "name"], name="ayework_control"),)

    def __str__(self) -> str:
        return f"{self.scope} {self.name}"


# Keys with an end: claims and waiters.


class StoreEntry(models.Model):
    """A key of the store with its value, and the moment at which it runs out."""

    key = IdentifierField(max_length=190, primary_key=True)
    value = PayloadField(blank=True)
    expires_at = models.DateTimeField(null=True, blank=True, db_index=True)

    class Meta:
        """Pruned once expired."""

        verbose_name = _("store entry")
        verbose_name_plural = _("store entries")

    def __str__(self) -> str:
        return str(self.key)


# Acts on many works.

BULK_STATUS_CHOICES = [
    ("running", _("running")),
    ("stopped", _("stopped")),
    ("done", _("done")),
    ("failed", _("failed")),
]


class BulkAction(models.Model):
    """An act on all works that match a filter. Workers carry it out page by page.

    Its row is the lock under which each page is carried out.
    """

    id = IdentifierField(max_length=64, primary_key=True)
    action = models.CharField(_("action"), max_length=40)
    parameters = PayloadField(_("parameters"), blank=True, default="{}")  # JSON, such as a new priority
    filter = PayloadField(_("filter"))  # JSON; see store.selection
    until = models.DateTimeField(_("until"))  # works that are newer are left alone
    per_minute = models.PositiveIntegerField(_("per minute"), null=True, blank=True)  # null: no limit
    status = models.CharField(_("status"), max_length=7, choices=BULK_STATUS_CHOICES, default="running")
    expected = models.IntegerField(_("expected"), default=0)  # counted up to a bound when it was created
    done = models.IntegerField(_("done"), default=0)
    refused = models.IntegerField(_("refused"), default=0)
    cursor = PayloadField(blank=True, default="")  # JSON: where the next page begins
    report = PayloadField(blank=True, default="[]")  # JSON: the first refusals, each an id and a sentence
    next_at = models.DateTimeField(null=True, blank=True)  # of the next page; null once it has ended
    created_at = models.DateTimeField(_("created at"))
    created_by = models.CharField(_("created by"), max_length=150, blank=True)  # the name of a user
    ended_at = models.DateTimeField(_("ended at"), null=True, blank=True)

    class Meta:
        """The index is what workers look for: pages that are due."""

        verbose_name = _("bulk action")
        verbose_name_plural = _("bulk actions")
        indexes = (
            PartialIndex(fields=["next_at"], name="ayework_bulk", where=Q(next_at__isnull=False), leading=()),
        )

    def __str__(self) -> str:
        return f"{self.action} {self.created_at:%Y-%m-%d %H:%M:%S}"


# Figures of the last hour and the last day.


class Throughput(models.Model):
    """How many attempts of a type and a queue ended in a span of time, as workers report every few seconds.

    Spans of a minute are kept for two hours, spans of a quarter of an hour for two days.
    """

    seconds = models.IntegerField()  # the length of the span: 60 or 900
    start = models.DateTimeField()
    type = IdentifierField(max_length=128)
    queue = IdentifierField(max_length=64)
    succeeded = models.IntegerField(default=0)
    failed = models.IntegerField(default=0)  # attempts that will be repeated
    dead = models.IntegerField(default=0)
    duration = models.FloatField(default=0.0)  # seconds that these attempts took, together

    class Meta:
        """The constraint is what reports add to; its index is what the overview and pruning read."""

        verbose_name = _("throughput")
        verbose_name_plural = _("throughput")
        constraints = (
            models.UniqueConstraint(fields=["seconds", "start", "type", "queue"], name="ayework_throughput"),
        )

    def __str__(self) -> str:
        return f"{self.type} {self.queue} {self.start:%Y-%m-%d %H:%M} {self.seconds} s"


# Worker processes.

COMMAND_CHOICES = [("quiet", _("quiet")), ("resume", _("resume")), ("stop", _("stop"))]


class WorkerProcess(models.Model):
    """One run of a worker, with an id of its own. The worker updates this row with each heartbeat."""

    id = IdentifierField(max_length=64, primary_key=True)
    name = IdentifierField(max_length=64, blank=True)
    host = models.CharField(max_length=255)
    pid = models.IntegerField()
    queues = models.TextField(blank=True)  # comma separated; empty means all
    concurrency = models.IntegerField()
    running = models.IntegerField(default=0)
    started_at = models.DateTimeField()
    seen_at = models.DateTimeField()
    stopped_at = models.DateTimeField(null=True, blank=True)
    trouble = models.CharField(max_length=500, blank=True, default="")  # stuck threads, in words
    version = models.CharField(max_length=40, blank=True, default="")  # of the project, see settings
    command = models.CharField(_("command"), max_length=6, choices=COMMAND_CHOICES, blank=True, default="")
    quiet = models.BooleanField(_("quiet"), default=False)  # it obeys: nothing more is claimed

    class Meta:
        """The index has the workers that have not stopped. Heartbeats do not change it."""

        verbose_name = _("worker process")
        verbose_name_plural = _("worker processes")
        indexes = (
            PartialIndex(
                fields=["started_at"],
                name="ayework_workers",
                where=Q(stopped_at__isnull=True),
                leading=("stopped_at",),
            ),
        )

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}"


class Overview(WorkerProcess):
    """The permission to look at the overview of the admin, and its address. It has no rows of its own.

    It is a proxy, because commands that read every table, such as ``dumpdata``, leave out proxies only.
    """

    class Meta:  # pyright: ignore[reportIncompatibleVariableOverride]  # a Meta of its own, as Django has it
        """The model has no table of its own."""

        proxy = True
        default_permissions = ("view",)
        verbose_name = _("overview")
        verbose_name_plural = _("overview")

    def __str__(self) -> str:
        return str(_("overview"))
