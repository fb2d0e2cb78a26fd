"""What people can do to works: retry and cancel them, delete their chains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.apps import apps
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_ayework.admin import columns
from django_ayework.admin.pages import Links
from django_ayework.errors import BlockerReference
from django_ayework.flow.acting import cancel_works, delete_chains
from django_ayework.flow.retry import retry_each
from django_ayework.models import Work
from django_ayework.store.database import rows
from django_ayework.store.deletion import Step, steps_among

# --- actions ---
# What people can do to works: retry and cancel them. Who did it is kept in the admin's log.
#
# Works come from the queryset of their model admin, whose permission is asked for each of them.

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
    log_change(request, [allowed[id] for id in report.ids], _("Retried."))
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
    log_change(request, [work for id, work in allowed.items() if id in cancelled], _("Cancelled."))
    if count := len(cancelled):
        done = ngettext("%(count)d work was cancelled.", "%(count)d works were cancelled.", count)
        messages.success(request, done % {"count": count})
    if count := len(allowed) - len(cancelled):
        ended = ngettext("%(count)d work had ended already.", "%(count)d works had ended already.", count)
        messages.warning(request, ended % {"count": count})
    refusal = _("expected a permission to cancel the work %(id)s (%(type)s), and you have none for it.")
    refuse(request, [refusal % {"id": w.id, "type": w.type} for w in works if w.id not in allowed])


def log_change(request: HttpRequest, works: Sequence[Work], what: str) -> None:
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


# --- deleting ---
# Deleting chains, after a page that asks whether that is meant. Who did it is kept in the admin's log.

#: Works whose chains go at once: all in one transaction, and the browser waits.
#: Works that the page names.
SHOWN = 100
ACTION = "delete_chains_selected"


@admin.action(permissions=["delete_chains"], description=gettext_lazy("Delete chains of selected works"))
def delete_chains_selected(
    model_admin: Any, request: HttpRequest, chosen: QuerySet[Work]
) -> HttpResponse | None:
    """Ask first; once that is confirmed, delete the chains of the works that were ticked."""
    ticked = list(chosen[: AT_ONCE + 1])
    allowed = [
        work.pk for work in ticked[:AT_ONCE] if model_admin.has_delete_chains_permission(request, work)
    ]
    refuse_others(request, ticked[:AT_ONCE], allowed)
    works = list(rows(Work).filter(id__in=allowed).only("id", "type", "chain_id").order_by("-id"))
    if not works:
        return None
    if request.POST.get("post"):
        delete_for(request, works)
        return None
    if len(ticked) > AT_ONCE:
        left = _("These are the first %(count)d of the selection; repeat the action for the others.")
        messages.warning(request, left % {"count": AT_ONCE})
    return confirmation(model_admin, request, works)


def refuse_others(request: HttpRequest, works: Sequence[Work], allowed: Sequence[str]) -> None:
    """Tell which works the user may see and may not delete."""
    refusal = _(
        "expected a permission to delete the chain of the work %(id)s (%(type)s), and you have none for it."
    )
    refuse(
        request, [refusal % {"id": work.pk, "type": work.type} for work in works if work.pk not in allowed]
    )


def chain_of(work: Work) -> str:
    """Return the id of a work's chain."""
    return str(work.chain_id or work.id)


def confirmation(model_admin: Any, request: HttpRequest, works: Sequence[Work]) -> HttpResponse:
    """Return the page that says what would go."""
    chains = list(dict.fromkeys(map(chain_of, works)))
    steps = steps_among(chains)
    links = Links(model_admin.admin_site, request)
    request.current_app = model_admin.admin_site.name
    context = {
        **model_admin.admin_site.each_context(request),
        "title": _("Delete chains"),
        "subtitle": None,
        "model_count": [(_("chains"), len(chains)), (_("works"), len(steps))],
        "steps": [shown(step, links) for step in steps[:SHOWN]],
        "more": max(len(steps) - SHOWN, 0),
        "queryset": works,
        "action": ACTION,
        "opts": model_admin.opts,
        "action_checkbox_name": ACTION_CHECKBOX_NAME,
        "media": model_admin.media,
    }
    return TemplateResponse(request, "admin/django_ayework/delete_chains.html", context)


def shown(step: Step, links: Links) -> str:
    """Return a work that would go as HTML."""
    return format_html("{} {} {}", step.type, links.work(step.id), columns.badge(step.status))


def delete_for(request: HttpRequest, works: Sequence[Work]) -> None:
    """Delete the chains of works on behalf of the request's user: log it, and tell how it went."""
    try:
        deleted = delete_chains(list(map(chain_of, works)))
    except BlockerReference as refusal:
        messages.error(request, str(refusal))
        return
    log_deletion(request, [work for work in works if chain_of(work) in set(deleted)])
    done = ngettext("%(count)d chain was deleted.", "%(count)d chains were deleted.", len(deleted))
    messages.success(request, done % {"count": len(deleted)})


def log_deletion(request: HttpRequest, works: Sequence[Work]) -> None:
    """Log the deletion of the works' chains in the admin, with its user."""
    if works and apps.is_installed("django.contrib.admin"):
        from django.contrib.admin.models import DELETION, LogEntry

        told = _("Deleted with its chain.")
        LogEntry.objects.log_actions(request.user.pk, works, DELETION, told)  # type: ignore[arg-type]
