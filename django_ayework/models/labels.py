"""The words people read for statuses, reasons and outcomes."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from django_ayework.rules.states import Outcome, Reason, Status

STATUS_LABELS = {
    Status.BLOCKED: _("blocked"),
    Status.SCHEDULED: _("scheduled"),
    Status.PENDING: _("pending"),
    Status.RUNNING: _("running"),
    Status.SUCCESS: _("success"),
    Status.DEAD: _("dead"),
    Status.CANCELLED: _("cancelled"),
}
REASON_LABELS = {
    Reason.EXHAUSTED: _("exhausted"),
    Reason.ABORTED: _("aborted"),
    Reason.EXPIRED: _("expired"),
    Reason.UNSATISFIABLE: _("unsatisfiable"),
    Reason.UNKNOWN_TYPE: _("unknown type"),
    Reason.BAD_INPUT: _("bad input"),
}
OUTCOME_LABELS = {
    Outcome.FAILED: _("failed"),
    Outcome.DIED: _("died"),
    Outcome.DEFERRED: _("deferred"),
    Outcome.LOST: _("lost"),
}

STATUS_CHOICES = [(status.value, label) for status, label in STATUS_LABELS.items()]
REASON_CHOICES = [(reason.value, label) for reason, label in REASON_LABELS.items()]
OUTCOME_CHOICES = [(outcome.value, label) for outcome, label in OUTCOME_LABELS.items()]
