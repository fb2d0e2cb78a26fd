"""What people can do to works: retry and cancel them. Who did it is kept in the admin's log.

Works come from the queryset of their model admin, whose permission is asked for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.apps import apps
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_ayework.flow.cancel import cancel_works
from django_ayework.flow.retry import retry_each
from django_ayework.models import Work

#: Works that one press of the button acts on: the browser waits.
AT_ONCE = 500
#: Refusals told one by one.
TOLD = 10

#: Acts on works for the user of a request, with the model admin whose permission is asked for each.
Act = Callable[[Any, HttpRequest, Sequence[Work]], None]


@admin.action(permissions=["retry"], description=gettext_lazy("Retry selected works"))
def retry_selected(model_admin: Any, request: HttpRequest, chosen: QuerySet[Work]) -> None:
    """Retry the works that were ticked."""
    act_on_first(retry_for, model_admin, request, chosen)


@admin.action(permissions=["cancel"], description=gettext_lazy("Cancel selected works"))
def cancel_selected(model_admin: Any, request: HttpRequest, chosen: QuerySet[Work]) -> None:
    """Cancel the works that were ticked."""
    act_on_first(cancel_for, model_admin, request, chosen)


def act_on_first(act: Act, model_admin: Any, request: HttpRequest, chosen: QuerySet[Work]) -> None:
    """Act on the first works of a selection; if there are more, say so."""
    works = list(chosen[: AT_ONCE + 1])
    act(model_admin, request, works[:AT_ONCE])
    if len(works) > AT_ONCE:
        left = _("These were the first %(count)d of the selection; repeat the action for the others.")
        messages.warning(request, left % {"count": AT_ONCE})


def retry_for(model_admin: Any, request: HttpRequest, works: Sequence[Work]) -> None:
    """Retry works on behalf of the request's user: log it, and tell how it went."""
    allowed = {work.id: work for work in works if model_admin.has_retry_permission(request, work)}
    report = retry_each(list(allowed))
    log(request, [allowed[id] for id in report.ids], _("Retried."))
    if count := len(report.ids):
        done = ngettext("%(count)d work was retried.", "%(count)d works were retried.", count)
        messages.success(request, done % {"count": count})
    if count := len(report.revived):
        waits = ngettext(
            "%(count)d work waits again for others.", "%(count)d works wait again for others.", count
        )
        messages.success(request, waits % {"count": count})
    refusal = _("expected a permission to retry the work %(id)s (%(type)s), and you have none for it.")
    forbidden = [refusal % {"id": work.id, "type": work.type} for work in works if work.id not in allowed]
    refuse(request, [*map(str, report.refusals.values()), *forbidden])


def cancel_for(model_admin: Any, request: HttpRequest, works: Sequence[Work]) -> None:
    """Cancel works on behalf of the request's user: log it, and tell how it went."""
    allowed = {work.id: work for work in works if model_admin.has_cancel_permission(request, work)}
    cancelled = set(cancel_works(list(allowed)))
    log(request, [work for id, work in allowed.items() if id in cancelled], _("Cancelled."))
    if count := len(cancelled):
        done = ngettext("%(count)d work was cancelled.", "%(count)d works were cancelled.", count)
        messages.success(request, done % {"count": count})
    if count := len(allowed) - len(cancelled):
        ended = ngettext("%(count)d work had ended already.", "%(count)d works had ended already.", count)
        messages.warning(request, ended % {"count": count})
    refusal = _("expected a permission to cancel the work %(id)s (%(type)s), and you have none for it.")
    refuse(request, [refusal % {"id": w.id, "type": w.type} for w in works if w.id not in allowed])


def log(request: HttpRequest, works: Sequence[Work], what: str) -> None:
    """Note in the admin's log who did what to which works. Dead letters are logged as works."""
    if works and apps.is_installed("django.contrib.admin"):
        from django.contrib.admin.models import CHANGE, LogEntry

        logged: Any = [Work(id=work.id, type=work.type) for work in works]
        LogEntry.objects.log_actions(request.user.pk, logged, CHANGE, what)  # type: ignore[arg-type]


def refuse(request: HttpRequest, refusals: Sequence[str]) -> None:
    """Tell why works were left as they are."""
    for refusal in refusals[:TOLD]:
        messages.error(request, refusal)
    if (count := len(refusals) - TOLD) > 0:
        more = ngettext("%(count)d more was refused.", "%(count)d more were refused.", count)
        messages.error(request, more % {"count": count})
