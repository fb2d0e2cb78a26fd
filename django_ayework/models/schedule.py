"""Schedules, and what became of their occurrences."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from django_ayework.models.fields import IdentifierField, PartialIndex, PayloadField

ORIGIN_CHOICES = [("code", _("code")), ("admin", _("admin"))]
KIND_CHOICES = [("cron", _("cron expression")), ("every", _("interval")), ("next", _("function"))]
OVERLAP_CHOICES = [("allow", _("allow")), ("skip", _("skip")), ("queue", _("queue"))]
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
    """What fires again and again. Its row is the lock under which each occurrence is dealt with.

    ``next_at`` is the next occurrence, null while a function has yet to say. ``due_at`` is when a scheduler
    is to look: the same, or later by a jitter or a back-off; null while nothing is to be done.
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
        """The index is what a tick reads: whatever is to be done, the soonest first."""

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
    """What became of an occurrence: there is one row for it in the whole fleet, for ever.

    A missed one stands for so many occurrences from its own on.
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
