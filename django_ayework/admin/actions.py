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
from django_ayework.store.database import rows

#: Works that one press of the button retries: each is a transaction, and the browser waits.
AT_ONCE = 500
#: Refusals told one by one.
TOLD = 10


@admin.action(permissions=["retry"], description=gettext_lazy("Retry selected works"))
def retry_selected(model_admin: Any, request: HttpRequest, chosen: QuerySet[Work]) -> None:
    """Retry the works that were ticked."""
    ids = list(chosen.values_list("id", flat=True)[: AT_ONCE + 1])
    retry_for(request, ids[:AT_ONCE])
    if len(ids) > AT_ONCE:
        left = _("These were the first %(count)d of the selection; repeat the action for the others.")
        messages.warning(request, left % {"count": AT_ONCE})


def retry_for(request: HttpRequest, ids: Sequence[str]) -> None:
    """Retry works on behalf of the request's user: log it, and tell how it went."""
    named = rows(Work).filter(id__in=ids).only("id", "type", "status")
    by_id = {work.id: work for work in named}
    report = retry_works([by_id.get(id) or Work(id=id) for id in ids])
    log(request, report.works)
    tell(request, report)


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
