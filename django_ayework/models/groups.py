"""Groups, and what gates and blocked works wait for."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from django_ayework.models.fields import IdentifierField, PartialIndex, PayloadField

# --- group ---
# A group: all works that come from one root.


class Group(models.Model):
    """Counts and value of a group of several works. Its id is that of its root work."""

    id = IdentifierField(max_length=64, primary_key=True)
    open = models.IntegerField(default=0)  # members that have not ended
    total = models.IntegerField(default=0)
    dead = models.IntegerField(default=0)
    value = PayloadField(null=True, blank=True)  # null: nobody has contributed
    final = models.BooleanField(default=False)
    done_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        """No index besides the key: groups are found through their works."""

        verbose_name = _("group")
        verbose_name_plural = _("groups")

    def __str__(self) -> str:
        return str(self.id)


# --- waiter ---
# Who waits for whom.


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
