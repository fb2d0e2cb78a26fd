"""Worker processes."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_ayework.models.fields import IdentifierField


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

    class Meta:
        """A handful of rows; no index besides the key."""

        verbose_name = _("worker process")
        verbose_name_plural = _("worker processes")

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}"
