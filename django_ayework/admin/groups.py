"""Groups: the list, and a page for each."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django.contrib import admin
from django.contrib.admin.exceptions import NotRegistered
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Case, QuerySet, Value, When
from django.db.models.functions import Left
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    HttpResponseNotAllowed,
    HttpResponseRedirect,
)
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext_lazy as _

from django_ayework.admin import columns, pages
from django_ayework.admin.actions import Act, act_on_first, cancel_for, retry_for
from django_ayework.admin.group_page import group_page
from django_ayework.admin.lists import ReadOnlyAdmin
from django_ayework.admin.pages import Links
from django_ayework.admin.works import WorkAdmin
from django_ayework.models import Group, Work
from django_ayework.rules.states import LIVE, RETRYABLE, Status
from django_ayework.store.clock import clock
from django_ayework.store.database import rows

#: Orders blocked works before all others.
IS_BLOCKED = Case(When(status=str(Status.BLOCKED), then=Value(0)), default=Value(1))

#: By what is asked for: what does it, and to works of which statuses.
ACTS: dict[str, tuple[Act, Collection[Status]]] = {
    "retry": (retry_for, RETRYABLE),
    "cancel": (cancel_for, LIVE),
}


@admin.display(description=_("done"))
def done(group: Group) -> str:
    """How many works have ended, as a bar and in figures."""
    return columns.group_progress(group)


@admin.display(description=_("value"))
def value(group: Any) -> str:
    """The beginning of the value, as it is stored."""
    return pages.NOTHING if group.value_start is None else pages.first_line(group.value_start, 60)


@admin.display(description=_("done at"))
def done_at(group: Group) -> str:
    """When the last work ended."""
    return pages.moment(group.done_at, clock.now())


@admin.register(Group)
class GroupAdmin(ReadOnlyAdmin):
    """Groups, the newest first."""

    deferred = ("value",)

    change_form_template = "admin/django_ayework/group_page.html"
    list_display = (columns.short_id, done, "total", "open", "dead", value, done_at)
    ordering = ("-id",)
    search_fields = ("id",)  # exactly; see get_search_results()
    search_help_text = _("The id of a group, which is the id of its first work.")

    def for_list(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Return groups with the beginning of their value."""
        light: QuerySet[Any] = super().for_list(rows).annotate(value_start=Left("value", 80))
        return light

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Find a group by its id."""
        term = search_term.strip()
        return (queryset.filter(id=term) if term else queryset), False

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return none: the page has sections of its own."""
        return ()

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: Any = None,
    ) -> HttpResponse:
        """Show a group."""
        works = self.works_admin()
        id = context["object_id"]
        may_retry = has_retryable(obj) and may("retry", works, request)
        may_cancel = obj.open > 0 and may("cancel", works, request)
        context |= {
            "page": group_page(obj, Links(self.admin_site, request)),
            "retry_url": self.address("retry", id) if may_retry else None,
            "cancel_url": self.address("cancel", id) if may_cancel else None,
        }
        return super().render_change_form(request, context, add, change, form_url, obj)

    def get_urls(self) -> list[URLPattern]:
        """Add the addresses that the buttons post to."""
        name = f"{self.opts.app_label}_{self.opts.model_name}"
        retry, cancel = map(self.admin_site.admin_view, (self.retry_view, self.cancel_view))
        return [
            path("<path:object_id>/retry/", retry, name=f"{name}_retry"),
            path("<path:object_id>/cancel/", cancel, name=f"{name}_cancel"),
            *super().get_urls(),
        ]

    def retry_view(self, request: HttpRequest, object_id: str) -> HttpResponseBase:
        """Retry the dead and cancelled works of a group, then show it."""
        return self.act("retry", request, object_id)

    def cancel_view(self, request: HttpRequest, object_id: str) -> HttpResponseBase:
        """Cancel the works of a group that have not ended, then show it."""
        return self.act("cancel", request, object_id)

    def act(self, what: str, request: HttpRequest, object_id: str) -> HttpResponseBase:
        """Act on those works of a group that the admin of works shows, each if the user may, then show it."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        group, works = self.get_object(request, unquote(object_id)), self.works_admin()
        if not (self.has_view_or_change_permission(request, group) and may(what, works, request)):
            raise PermissionDenied
        if group is None:
            raise Http404(f"expected the id of a group of this list, got: {unquote(object_id)!r}.")
        act, statuses = ACTS[what]
        members = works.get_queryset(request).filter(group_id=group.id, status__in=map(str, statuses))
        # Waiters first: those of a later page must not start because of what this one cancels.
        act_on_first(act, works, request, members.defer(*works.deferred).order_by(IS_BLOCKED, "-id"))
        return HttpResponseRedirect(self.address("change", quote(group.id)))

    def works_admin(self) -> Any:
        """Return the admin of works on this site, which says what is shown and who may act; or None."""
        try:
            return self.admin_site.get_model_admin(Work)
        except NotRegistered:
            return None

    def address(self, page: str, object_id: str) -> str:
        """Return the address of one of a group's pages; the id comes quoted."""
        name = f"admin:{self.opts.app_label}_{self.opts.model_name}_{page}"
        return reverse(name, args=[object_id], current_app=self.admin_site.name)


def may(what: str, works: Any, request: HttpRequest) -> bool:
    """Tell whether the user may, say, "retry" works in general; of each work its admin is asked later."""
    return isinstance(works, WorkAdmin) and getattr(works, f"has_{what}_permission")(request)


def has_retryable(group: Group) -> bool:
    """Tell whether a group has works that can be retried."""
    statuses = [str(status) for status in RETRYABLE]
    ended = group.total > group.open
    return ended and rows(Work).filter(group_id=group.id, status__in=statuses).exists()
