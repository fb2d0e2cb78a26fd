"""Who waits for whom."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from django_ayework.models.fields import IdentifierField, PayloadField
from django_ayework.models.indexes import PartialIndex


class Waiter(models.Model):
    """What a blocked work waits for, as counts: deciding it costs the same for 2 or 50 000 watched works.

    Its row is the lock under which the work is decided.
    """

    work_id = IdentifierField(max_length=64, primary_key=True)
    condition = PayloadField()
    on_unmet = models.CharField(max_length=4, default="dead")
    total = models.IntegerField(default=0)
    succeeded = models.IntegerField(default=0)
    missed = models.IntegerField(default=0)  # watched works that ended dead or cancelled
    # Born while other transactions could settle what it watches: somebody must look again after the commit.
    recheck = models.BooleanField(default=False)

    class Meta:
        """Rechecks are rare; their index is nearly always empty."""

        verbose_name = _("waiter")
        verbose_name_plural = _("waiters")
        indexes = (
            PartialIndex(
                fields=["work_id"], name="ayework_recheck", where=Q(recheck=True), leading=("recheck",)
            ),
        )

    def __str__(self) -> str:
        return str(self.work_id)


class Edge(models.Model):
    """A watched id. No foreign key: an id may be watched before it exists and after it is gone."""

    waiter_id = IdentifierField(max_length=64)
    watched_id = IdentifierField(max_length=64)
    chain = models.BooleanField(default=False)  # a blocker: the chain of this id is watched, not the work
    position = models.IntegerField()
    outcome = models.CharField(max_length=9, blank=True)  # a terminal status, once known

    class Meta:
        """Read from both ends."""

        verbose_name = _("edge")
        verbose_name_plural = _("edges")
        indexes = (
            models.Index(fields=["watched_id"], name="ayework_watchers"),
            models.Index(fields=["waiter_id", "position"], name="ayework_watched"),
        )

    def __str__(self) -> str:
        return f"{self.waiter_id} waits for {self.watched_id}"
