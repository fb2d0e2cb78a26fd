"""Works with their failed attempts; groups; what gates and blocked works wait for."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from django_ayework.define.requests import GATE_TYPE
from django_ayework.models.fields import IdentifierField, PartialIndex, PartialUnique, PayloadField
from django_ayework.rules.states import Outcome, Reason, Status

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


# Waiters, and their edges to watched works.


class Waiter(models.Model):
    """The condition of a blocked work, with counts: a decision costs the same for 2 or 50 000 watched works.

    Its row is the lock under which the work is decided.
    """

    work_id = IdentifierField(max_length=64, primary_key=True)
    condition = PayloadField()
    on_unmet = models.CharField(max_length=4, default="dead")
    total = models.IntegerField(default=0)
    succeeded = models.IntegerField(default=0)
    missed = models.IntegerField(default=0)  # watched works that ended dead or cancelled
    # Inserted while other transactions could settle the watched works: it is rechecked after the commit.
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


# The words people read for statuses, reasons and outcomes.

STATUS_LABELS: dict[str, Any] = {
    Status.BLOCKED: _("blocked"),
    Status.SCHEDULED: _("scheduled"),
    Status.PENDING: _("pending"),
    Status.RUNNING: _("running"),
    Status.SUCCESS: _("success"),
    Status.DEAD: _("dead"),
    Status.CANCELLED: _("cancelled"),
}
REASON_LABELS: dict[str, Any] = {
    Reason.EXHAUSTED: _("exhausted"),
    Reason.ABORTED: _("aborted"),
    Reason.EXPIRED: _("expired"),
    Reason.UNSATISFIABLE: _("unsatisfiable"),
    Reason.UNKNOWN_TYPE: _("unknown type"),
    Reason.BAD_INPUT: _("bad input"),
}
OUTCOME_LABELS: dict[str, Any] = {
    Outcome.FAILED: _("failed"),
    Outcome.DIED: _("died"),
    Outcome.DEFERRED: _("deferred"),
    Outcome.LOST: _("lost"),
    Outcome.REVOKED: _("revoked"),
    Outcome.SUCCESS: _("success"),
}

STATUS_CHOICES = [(str(status), label) for status, label in STATUS_LABELS.items()]
REASON_CHOICES = [(str(reason), label) for reason, label in REASON_LABELS.items()]
OUTCOME_CHOICES = [(str(outcome), label) for outcome, label in OUTCOME_LABELS.items()]


class Work(models.Model):
    """A unit of background work. Only ``store.transitions`` and ``store.claims`` write ``status``."""

    id = IdentifierField(max_length=64, primary_key=True)
    type = IdentifierField(max_length=128)
    queue = IdentifierField(max_length=64)
    status = models.CharField(max_length=9, choices=STATUS_CHOICES)
    reason = models.CharField(max_length=13, blank=True, choices=REASON_CHOICES)
    priority = models.IntegerField(default=0)
    fairness = IdentifierField(max_length=64, blank=True)
    # Null while the work is the only one of its group: a plain job never touches the group table.
    group_id = IdentifierField(max_length=64, null=True, blank=True)
    parent_id = IdentifierField(max_length=64, null=True, blank=True)
    # The id of the chain's first work, which has it from when it hands over to another. Null while a work is
    # alone: a chain of one. Continuations count up from 1.
    chain_id = IdentifierField(max_length=64, null=True, blank=True)
    chain_index = models.IntegerField(default=0)
    about_type = IdentifierField(max_length=128, null=True, blank=True)
    about_id = IdentifierField(max_length=64, null=True, blank=True)
    input = PayloadField()
    options = PayloadField()  # retry, timeout, expires, … as resolved when it was queued
    result = PayloadField(null=True, blank=True)
    error = PayloadField(blank=True)  # of the last attempt that did not succeed
    # Of a dead work: the fingerprint of its error without what differs from work to work (``rules.causes``).
    cause = IdentifierField(max_length=16, blank=True, default="", db_default="")
    progress = PayloadField(null=True, blank=True)
    attempt = models.IntegerField(default=0)  # counted by each claim; a deferral gives it back
    delivery = models.IntegerField(default=0)  # grows at every claim: the fencing token
    # The last delivery whose handler was about to be called. Only last attempts are noted: of those a lost
    # worker costs the ones that had begun.
    begun_delivery = models.IntegerField(default=0, db_default=0)
    worker = IdentifierField(max_length=64, null=True, blank=True)
    leased_until = models.DateTimeField(null=True, blank=True)
    deadline = models.DateTimeField(null=True, blank=True)
    queued_at = models.DateTimeField()
    run_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    completed_by = IdentifierField(max_length=64, null=True, blank=True)
    # The key a chain was queued with, and the type it was queued as: each of its works bears both.
    dedup_key = IdentifierField(max_length=190, null=True, blank=True)
    dedup_type = IdentifierField(max_length=128, null=True, blank=True)
    # The subject of the work within its type: one live work per unit.
    unit = IdentifierField(max_length=190, null=True, blank=True)
    # Orders works of equal priority before their age. The unit where the type is claimed by unit, the turn of
    # a work with a label (``FairnessKey`` in ``rules.controls``), else empty.
    sort_key = IdentifierField(max_length=190, blank=True, default="")

    class Meta:
        """Each index is named after what reads it."""

        verbose_name = _("work")
        verbose_name_plural = _("works")
        permissions = (
            ("retry_work", "Can retry works"),
            ("cancel_work", "Can cancel works"),
            ("edit_input_work", "Can edit the input of works"),
            ("bulk_work", "Can act on all works that match a filter"),
        )
        constraints = (
            # A step has one continuation, whatever happens.
            PartialUnique(
                fields=["chain_id", "chain_index"], name="ayework_chain", where=Q(chain_id__isnull=False)
            ),
        )
        indexes = (
            # Claims: the pending works of a queue and a type, in the order of claiming.
            PartialIndex(
                fields=["queue", "type", "-priority", "sort_key", "run_at", "id"],
                name="ayework_lane",
                where=Q(status="pending"),
            ),
            # Enqueue with a fairness label: the last turn of that label in a lane.
            PartialIndex(
                fields=["fairness", "queue", "type", "priority", "sort_key"],
                name="ayework_turn",
                where=~Q(fairness="") & Q(status="pending"),
            ),
            # Staging: scheduled works that are due.
            PartialIndex(fields=["run_at"], name="ayework_due", where=Q(status="scheduled")),
            # Reclaiming: leases that have lapsed. Only running works are leased, so status need not lead.
            PartialIndex(
                fields=["leased_until"], name="ayework_lapsed", where=Q(status="running"), leading=()
            ),
            # Expiring gates, and the sweep, which reads blocked works page by page: many have no deadline, so
            # the id follows it.
            PartialIndex(fields=["deadline", "id"], name="ayework_blocked", where=Q(status="blocked")),
            # Retention: the longest ended works of each type.
            PartialIndex(
                fields=["status", "type", "ended_at"],
                name="ayework_ended",
                where=Q(ended_at__isnull=False),
                leading=(),
            ),
            # Dead letters, by the time of their death.
            PartialIndex(fields=["ended_at", "id"], name="ayework_dead", where=Q(status="dead")),
            # Dead letters by cause: counts, the first and the last of each.
            PartialIndex(
                fields=["type", "reason", "cause", "ended_at"], name="ayework_cause", where=Q(status="dead")
            ),
            # The list of works, the newest first. Ids need not be in the order of time.
            models.Index(fields=["queued_at", "id"], name="ayework_queued"),
            # Works of a group.
            PartialIndex(
                fields=["group_id"], name="ayework_group", where=Q(group_id__isnull=False), leading=()
            ),
            # Works about an object of the project.
            PartialIndex(
                fields=["about_type", "about_id"],
                name="ayework_about",
                where=Q(about_type__isnull=False),
                leading=(),
            ),
            # Deduplication. The end precedes the start: of a key that recurs, all but the last few have
            # ended.
            PartialIndex(
                fields=["dedup_type", "dedup_key", "ended_at", "queued_at"],
                name="ayework_key",
                where=Q(dedup_key__isnull=False),
                leading=(),
            ),
            # The live work of a unit: of a unit that recurs, all works but the last have ended.
            PartialIndex(
                fields=["type", "unit", "ended_at"],
                name="ayework_unit",
                where=Q(unit__isnull=False),
                leading=(),
            ),
        )

    def __str__(self) -> str:
        return f"{self.type} {self.id}"

    @property
    def chain(self) -> str:
        """The id of the chain, which is that of its first work."""
        return str(self.chain_id or self.id)


class Selected(models.Manager[Any]):
    """The works that have these values: those of a proxy."""

    def __init__(self, **values: str) -> None:
        super().__init__()
        self.values_of_all = values

    def get_queryset(self) -> models.QuerySet[Any]:
        """Leave out all other works."""
        return super().get_queryset().filter(**self.values_of_all)


class DeadLetter(Work):
    """A dead work, kept until an operator decides about it."""

    objects: ClassVar[Any] = Selected(status=Status.DEAD)

    class Meta:  # pyright: ignore[reportIncompatibleVariableOverride]  # a Meta of its own, as Django has it
        """A page of its own in the admin."""

        proxy = True
        verbose_name = _("dead letter")
        verbose_name_plural = _("dead letters")

    def __str__(self) -> str:
        return f"{self.type} {self.id} ({self.reason})"


class Gate(Work):
    """A gate: the work that waits for others, and releases works when its condition is met."""

    objects: ClassVar[Any] = Selected(type=GATE_TYPE)

    class Meta:  # pyright: ignore[reportIncompatibleVariableOverride]  # a Meta of its own, as Django has it
        """A page of its own in the admin."""

        proxy = True
        verbose_name = _("gate")
        verbose_name_plural = _("gates")


# Inputs that were edited.


class InputRevision(models.Model):
    """The input that a work had before it was edited. Pruned with the work."""

    work_id = IdentifierField(max_length=64)
    input = PayloadField()
    replaced_at = models.DateTimeField()
    replaced_by = models.CharField(max_length=150, blank=True)  # the name of a user

    class Meta:
        """Read by work, in order."""

        verbose_name = _("input revision")
        verbose_name_plural = _("input revisions")
        indexes = (models.Index(fields=["work_id", "id"], name="ayework_revisions"),)

    def __str__(self) -> str:
        return f"{self.work_id} until {self.replaced_at:%Y-%m-%d %H:%M:%S}"


# Attempts.


class Attempt(models.Model):
    """One try of a work that failed, died, was deferred, or lost its worker.

    Those that succeeded are kept for types with ``keep_attempts``.
    """

    work_id = IdentifierField(max_length=64)
    number = models.IntegerField()
    worker = IdentifierField(max_length=64, blank=True)
    outcome = models.CharField(max_length=8, choices=OUTCOME_CHOICES)
    error = PayloadField(blank=True)
    # The class of its exception, as module and name; empty where none was raised.
    exception = models.CharField(max_length=255, blank=True, default="", db_default="")
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
