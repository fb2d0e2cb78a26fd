"""What operators and workers keep beside works: controls, worker processes, keys."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from django_ayework.models.fields import IdentifierField, PartialIndex, PayloadField

# --- control ---
# What operators decide at run time about a type or a queue.

SCOPE_CHOICES = [("type", _("type")), ("queue", _("queue"))]


class WorkControl(models.Model):
    """One row per type or queue that is controlled; what is null is as the code declares it.

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


# --- entry ---
# Keys with an end: claims and waiters.


class StoreEntry(models.Model):
    """A key, a value, and when it is free again."""

    key = IdentifierField(max_length=190, primary_key=True)
    value = PayloadField(blank=True)
    expires_at = models.DateTimeField(null=True, blank=True, db_index=True)

    class Meta:
        """Pruned once expired."""

        verbose_name = _("store entry")
        verbose_name_plural = _("store entries")

    def __str__(self) -> str:
        return str(self.key)


# --- process ---
# Worker processes.


class WorkerProcess(models.Model):
    """One boot of a worker: a new id each time, never a reused name. Its heartbeat is this narrow row."""

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

    class Meta:
        """The index is over those that have not stopped; it is not touched by heartbeats."""

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
