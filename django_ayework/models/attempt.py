"""Attempts that did not succeed."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_ayework.models.fields import IdentifierField, PayloadField
from django_ayework.models.labels import OUTCOME_CHOICES


class Attempt(models.Model):
    """One try of a work that failed, died, was deferred, or lost its worker."""

    work_id = IdentifierField(max_length=64)
    number = models.IntegerField()
    worker = IdentifierField(max_length=64, blank=True)
    outcome = models.CharField(max_length=8, choices=OUTCOME_CHOICES)
    error = PayloadField(blank=True)
    traceback = PayloadField(blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField()

    class Meta:
        """Read by work, in order."""

        verbose_name = _("attempt")
        verbose_name_plural = _("attempts")
        indexes = (models.Index(fields=["work_id", "number"], name="ayework_attempts"),)

    def __str__(self) -> str:
        return f"{self.work_id} #{self.number} {self.outcome}"
