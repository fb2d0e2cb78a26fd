"""Acts on works in the admin: retry, cancel, delete chains. The admin's log keeps who did what.

Works come from the queryset of their model admin, whose permission is asked for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    HttpResponseNotAllowed,
    HttpResponseRedirect,
)
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext_lazy

from django_ayework.admin import lists
from django_ayework.admin.pages import Links
from django_ayework.errors import BlockerReference
from django_ayework.flow.acting import cancel_works, delete_chains
from django_ayework.flow.retry import retry_each
from django_ayework.models import Work
from django_ayework.rules.states import LIVE, RETRYABLE, Status
from django_ayework.store.database import rows
from django_ayework.store.deletion import steps_among

#: Works that one press of a button acts on: the browser waits.
AT_ONCE = 500
#: Refusals that are shown one by one.
REFUSALS_SHOWN = 10
#: Works that the page before a deletion names.
SHOWN = 100

#: Shown for a work that the user may not act on, by the permission that is missing.
FORBIDDEN = {
    "retry": gettext_lazy(
        "expected a permission to retry the work %(id)s (%(type)s), and you have none for it."
    ),
    "cancel": gettext_lazy(
        "expected a permission to cancel the work %(id)s (%(type)s), and you have none for it."
    ),
    "delete_chains": gettext_lazy(
        "expected a permission to delete the chain of the work %(id)s (%(type)s), and you have none for it."
    ),
}
RETRIED = ngettext_lazy("%(count)d work was retried.", "%(count)d works were retried.", "count")
WAITS_AGAIN = ngettext_lazy(
    "%(count)d work waits again for others.", "%(count)d works wait again for others.", "count"
)
CANCELLED = ngettext_lazy("%(count)d work was cancelled.", "%(count)d works were cancelled.", "count")
HAD_ENDED = ngettext_lazy("%(count)d work had ended already.", "%(count)d works had ended already.", "count")
DELETED = ngettext_lazy("%(count)d chain was deleted.", "%(count)d chains were deleted.", "count")
MORE_REFUSED = ngettext_lazy("%(count)d more was refused.", "%(count)d more were refused.", "count")


# Permissions, messages, the log


def split_by_permission(
    what: str, model_admin: Any, request: HttpRequest, works: Iterable[Work]
) -> tuple[dict[str, Work], list[str]]:
    """Return the works that the user may, for example, "retry", by id; and a refusal for each other work."""
    may = getattr(model_admin, f"has_{what}_permission")
    allowed: dict[str, Work] = {}
    refusals: list[str] = []
    for work in works:
        if may(request, work):
            allowed[work.pk] = work
        else:
            refusals.append(FORBIDDEN[what] % {"id": work.pk, "type": work.type})
    return allowed, refusals


def tell(request: HttpRequest, level: int, text: Any, count: int) -> None:
    """Show the user a message with a count, unless that is zero."""
    if count > 0:
        messages.add_message(request, level, text % {"count": count})


def refuse(request: HttpRequest, refusals: Sequence[str]) -> None:
    """Show the user why works were left as they are."""
    for refusal in refusals[:REFUSALS_SHOWN]:
        messages.error(request, refusal)
    tell(request, messages.ERROR, MORE_REFUSED, len(refusals) - REFUSALS_SHOWN)


def log_act(request: HttpRequest, works: Iterable[Work], text: str, is_deletion: bool = False) -> None:
    """Write into the admin's log what the user did to works. Dead letters are logged as works."""
    from django.contrib.admin.models import CHANGE, DELETION, LogEntry  # needs an installed admin

    logged: Any = [Work(id=work.id, type=work.type) for work in works]
    if logged:
        flag = DELETION if is_deletion else CHANGE
        LogEntry.objects.log_actions(request.user.pk, logged, flag, text)  # type: ignore[arg-type]


# Retrying and cancelling


def retry_for(model_admin: Any, request: HttpRequest, works: Sequence[Work]) -> None:
    """Retry works for the user of a request: log it, and show the result."""
    allowed, refusals = split_by_permission("retry", model_admin, request, works)
    report = retry_each(list(allowed))
    log_act(request, [allowed[id] for id in report.ids], _("Retried."))
    tell(request, messages.SUCCESS, RETRIED, len(report.ids))
    tell(request, messages.SUCCESS, WAITS_AGAIN, len(report.revived))
    refuse(request, [*map(str, report.refusals.values()), *refusals])


def cancel_for(model_admin: Any, request: HttpRequest, works: Sequence[Work]) -> None:
    """Cancel works for the user of a request: log it, and show the result."""
    allowed, refusals = split_by_permission("cancel", model_admin, request, works)
    cancelled = set(cancel_works(list(allowed)))
    log_act(request, [work for id, work in allowed.items() if id in cancelled], _("Cancelled."))
    tell(request, messages.SUCCESS, CANCELLED, len(cancelled))
    tell(request, messages.WARNING, HAD_ENDED, len(allowed) - len(cancelled))
    refuse(request, refusals)


class Act(NamedTuple):
    """An act with a button: the function that acts for a user, and the statuses of works that it acts on."""

    act_for: Callable[[Any, HttpRequest, Sequence[Work]], None]
    statuses: Collection[Status]


ACTS = {"retry": Act(retry_for, RETRYABLE), "cancel": Act(cancel_for, LIVE)}


def act_on_first(what: str, model_admin: Any, request: HttpRequest, chosen: QuerySet[Work]) -> None:
    """Act on the first works of a selection; show a message if there are more."""
    works = list(chosen[: AT_ONCE + 1])
    ACTS[what].act_for(model_admin, request, works[:AT_ONCE])
    if len(works) > AT_ONCE:
        left = _("These were the first %(count)d of the selection; repeat the action for the others.")
        messages.warning(request, left % {"count": AT_ONCE})


@admin.action(permissions=["retry"], description=gettext_lazy("Retry selected works"))
def retry_selected(model_admin: Any, request: HttpRequest, chosen: QuerySet[Work]) -> None:
    """Retry the ticked works."""
    act_on_first("retry", model_admin, request, chosen)


@admin.action(permissions=["cancel"], description=gettext_lazy("Cancel selected works"))
def cancel_selected(model_admin: Any, request: HttpRequest, chosen: QuerySet[Work]) -> None:
    """Cancel the ticked works."""
    act_on_first("cancel", model_admin, request, chosen)


class ActingAdmin(lists.PageAdmin):
    """Pages with a button for each of ``ACTS``."""

    def may_act(self, what: str, request: HttpRequest, obj: Any) -> bool:
        """Tell whether the user may, for example, "retry" the row of a page."""
        raise NotImplementedError

    def is_open_to(self, what: str, obj: Any) -> bool:
        """Tell whether the row of a page is in a state that can be acted on."""
        raise NotImplementedError

    def act(self, what: str, request: HttpRequest, obj: Any) -> None:
        """Act on the row of a page."""
        raise NotImplementedError

    def address_after(self, request: HttpRequest, obj: Any) -> str:
        """Return the address to show after an act."""
        return self.address("change", obj.pk)

    def buttons(self, request: HttpRequest, obj: Any) -> dict[str, str | None]:
        """Return the addresses of the buttons; None for a button that is not shown."""
        shown = {what: self.is_open_to(what, obj) and self.may_act(what, request, obj) for what in ACTS}
        return {f"{what}_url": self.address(what, obj.pk) if shown[what] else None for what in ACTS}

    def get_urls(self) -> list[URLPattern]:
        """Add the addresses that the buttons post to."""
        name = f"{self.opts.app_label}_{self.opts.model_name}"
        buttons = [
            path(
                f"<path:object_id>/{what}/",
                self.admin_site.admin_view(partial(self.act_view, what)),
                name=f"{name}_{what}",
            )
            for what in ACTS
        ]
        return [*buttons, *super().get_urls()]

    def act_view(self, what: str, request: HttpRequest, object_id: str) -> HttpResponseBase:
        """Act on a row of the queryset, if the user may, then show it."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        obj = self.get_object(request, unquote(object_id))
        if not self.may_act(what, request, obj):
            raise PermissionDenied
        if obj is None:
            kind = self.opts.verbose_name
            raise Http404(f"expected the id of a {kind} of this list, got: {unquote(object_id)!r}.")
        self.act(what, request, obj)
        return HttpResponseRedirect(self.address_after(request, obj))


# Deleting chains


@admin.action(permissions=["delete_chains"], description=gettext_lazy("Delete chains of selected works"))
def delete_chains_selected(
    model_admin: Any, request: HttpRequest, chosen: QuerySet[Work]
) -> HttpResponse | None:
    """Ask first; once that is confirmed, delete the chains of the ticked works."""
    ticked = list(chosen[: AT_ONCE + 1])
    allowed, refusals = split_by_permission("delete_chains", model_admin, request, ticked[:AT_ONCE])
    refuse(request, refusals)
    works = list(rows(Work).filter(id__in=list(allowed)).only("id", "type", "chain_id").order_by("-id"))
    if not works:
        return None
    if request.POST.get("post"):
        delete_for(request, works)
        return None
    if len(ticked) > AT_ONCE:
        left = _("These are the first %(count)d of the selection; repeat the action for the others.")
        messages.warning(request, left % {"count": AT_ONCE})
    return confirmation(model_admin, request, works)


def chain_of(work: Work) -> str:
    """Return the id of a work's chain."""
    return str(work.chain_id or work.id)


def confirmation(model_admin: Any, request: HttpRequest, works: Sequence[Work]) -> HttpResponse:
    """Return the page that shows the works that would go."""
    chains = list(dict.fromkeys(map(chain_of, works)))
    steps = steps_among(chains)
    links = Links(model_admin.admin_site, request)
    request.current_app = model_admin.admin_site.name
    context = {
        **model_admin.admin_site.each_context(request),
        "title": _("Delete chains"),
        "subtitle": None,
        "model_count": [(_("chains"), len(chains)), (_("works"), len(steps))],
        "steps": [
            format_html("{} {} {}", step.type, links.work(step.id), lists.status(step.status))
            for step in steps[:SHOWN]
        ],
        "more": max(len(steps) - SHOWN, 0),
        "queryset": works,
        "action": delete_chains_selected.__name__,
        "opts": model_admin.opts,
        "action_checkbox_name": ACTION_CHECKBOX_NAME,
        "media": model_admin.media,
    }
    return TemplateResponse(request, "admin/django_ayework/delete_chains.html", context)


def delete_for(request: HttpRequest, works: Sequence[Work]) -> None:
    """Delete the chains of works for the user of a request: log it, and show the result."""
    try:
        deleted = delete_chains(list(map(chain_of, works)))
    except BlockerReference as refusal:
        messages.error(request, str(refusal))
        return
    gone = [work for work in works if chain_of(work) in set(deleted)]
    log_act(request, gone, _("Deleted with its chain."), is_deletion=True)
    messages.success(request, DELETED % {"count": len(deleted)})
