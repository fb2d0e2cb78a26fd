"""Deleting chains, after a page that asks whether that is meant. Who did it is kept in the admin's log."""

from __future__ import annotations

from collections.abc import Sequence
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
from django_ayework.admin.actions import refuse
from django_ayework.admin.links import Links
from django_ayework.errors import BlockerReference
from django_ayework.flow.delete import delete_chains
from django_ayework.models import Work
from django_ayework.store.database import rows
from django_ayework.store.deletion import Step, steps_among

#: Works whose chains go at once: all in one transaction, and the browser waits.
AT_ONCE = 500
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
        deleted = delete_chains(map(chain_of, works))
    except BlockerReference as refusal:
        messages.error(request, str(refusal))
        return
    log(request, [work for work in works if chain_of(work) in set(deleted)])
    done = ngettext("%(count)d chain was deleted.", "%(count)d chains were deleted.", len(deleted))
    messages.success(request, done % {"count": len(deleted)})


def log(request: HttpRequest, works: Sequence[Work]) -> None:
    """Note in the admin's log who deleted the chains of which works."""
    if works and apps.is_installed("django.contrib.admin"):
        from django.contrib.admin.models import DELETION, LogEntry

        told = _("Deleted with its chain.")
        LogEntry.objects.log_actions(request.user.pk, works, DELETION, told)  # type: ignore[arg-type]
