"""What operators decide at run time about a type or a queue."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_ayework.models.fields import IdentifierField

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
