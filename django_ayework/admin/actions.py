"""What people can do to works: retry them. Who did it is kept in the admin's log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import apps
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_ayework.admin.retrying import Retried, retry_works
from django_ayework.models import Work

#: Works that one press of the button retries: each is a transaction, and the browser waits.
AT_ONCE = 500
#: Refusals told one by one.
TOLD = 10


@admin.action(permissions=["retry"], description=gettext_lazy("Retry selected works"))
def retry_selected(model_admin: Any, request: HttpRequest, chosen: QuerySet[Work]) -> None:
    """Retry the works that were ticked."""
    works = list(chosen[: AT_ONCE + 1])
    retry_for(model_admin, request, works[:AT_ONCE])
    if len(works) > AT_ONCE:
        left = _("These were the first %(count)d of the selection; repeat the action for the others.")
        messages.warning(request, left % {"count": AT_ONCE})


def retry_for(model_admin: Any, request: HttpRequest, works: Sequence[Work]) -> None:
    """Retry works on behalf of the request's user: log it, and tell how it went.

    The works are of the model admin's queryset. Its permission is asked for each of them.
    """
    allowed = {work.id for work in works if model_admin.has_retry_permission(request, work)}
    # Log entries are of works, also when dead letters were chosen.
    report = retry_works([Work(id=w.id, type=w.type, status=w.status) for w in works if w.id in allowed])
    report.refusals += [forbidden(work) for work in works if work.id not in allowed]
    log(request, report.works)
    tell(request, report)


def forbidden(work: Work) -> str:
    """Return the refusal of a work that the user may see and may not retry."""
    refusal = _("expected a permission to retry the work %(id)s (%(type)s), and you have none for it.")
    return refusal % {"id": work.id, "type": work.type}


def log(request: HttpRequest, works: Sequence[Work]) -> None:
    """Note in the admin's log who retried what."""
    if works and apps.is_installed("django.contrib.admin"):
        from django.contrib.admin.models import CHANGE, LogEntry

        LogEntry.objects.log_actions(request.user.pk, works, CHANGE, _("Retried."))  # type: ignore[arg-type]


def tell(request: HttpRequest, report: Retried) -> None:
    """Tell how many works were retried, and why others were not."""
    if count := len(report.works):
        done = ngettext("%(count)d work was retried.", "%(count)d works were retried.", count)
        messages.success(request, done % {"count": count})
    if count := len(report.revived):
        waits = ngettext("%(count)d gate waits again.", "%(count)d gates wait again.", count)
        messages.success(request, waits % {"count": count})
    for refusal in report.refusals[:TOLD]:
        messages.error(request, refusal)
    if (count := len(report.refusals) - TOLD) > 0:
        more = ngettext("%(count)d more was refused.", "%(count)d more were refused.", count)
        messages.error(request, more % {"count": count})
