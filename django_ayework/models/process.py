"""Worker processes."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from django_ayework.models.fields import IdentifierField
from django_ayework.models.indexes import PartialIndex


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
    trouble = models.CharField(
        max_length=500, blank=True, default="", db_default=""
    )  # stuck threads, in words

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
