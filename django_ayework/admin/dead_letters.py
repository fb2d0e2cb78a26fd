"""Dead letters: by cause, as a plain list, and as a file."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar
from urllib.parse import urlencode

from django.contrib import admin
from django.contrib.admin.views.main import SEARCH_VAR, ChangeList
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext as _

from django_ayework.admin import filters, finding, lists, pages
from django_ayework.admin.action_execution import SELECTED
from django_ayework.admin.actions import ACTS
from django_ayework.admin.bulk_actions import BulkActionAdmin
from django_ayework.admin.filters import bulk_address, plain_filter
from django_ayework.admin.pages import Links, admin_of
from django_ayework.admin.works import WorkAdmin
from django_ayework.define.requests import GATE_TYPE
from django_ayework.flow.drawing import number_text
from django_ayework.flow.payloads import decode_options, input_for_people
from django_ayework.models import BulkAction, DeadLetter, Work
from django_ayework.rules.causes import normalised
from django_ayework.rules.states import Status
from django_ayework.store.causes import MOST, Cause, causes
from django_ayework.store.database import clock
from django_ayework.store.selection import Selection, selection_of

#: Works of one page of an export: one query, and so much memory.
EXPORT_PAGE = 500


@admin.register(DeadLetter)
class DeadLetterAdmin(WorkAdmin):
    """Dead works, by cause first; in the plain list the last to die first.

    A work that is retried or deleted leaves both.
    """

    looks = (*WorkAdmin.looks, "bulk")
    delete_permissions: tuple[str, ...] = ("django_ayework.delete_deadletter", "django_ayework.delete_work")
    lookups = frozenset({*WorkAdmin.lookups, "cause"})
    about = fixed_filter = MappingProxyType({"status": str(Status.DEAD)})

    buttons = (ACTS["retry"], ACTS["delete_chains"])
    actions: Any = (SELECTED["retry"], SELECTED["delete_chains"])
    list_display: Any = (
        lists.short_id,
        lists.type_and_error,
        lists.reason,
        lists.attempt,
        lists.died,
    )
    list_filter: ClassVar[Any] = (filters.ReasonFilter, filters.TypeFilter, filters.OlderFilter)
    ordering: ClassVar[Any] = ("-ended_at", "-id")
    sortable_by = (lists.died.__name__,)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Return the plain list: an index leads to the dead, but to no text that is searched for."""
        search = finding.searched(request, request.GET.get(SEARCH_VAR, ""))
        return finding.WorkChangeList if search and search.is_broad else lists.LightChangeList

    def get_urls(self) -> list[URLPattern]:
        """Add the plain list, and the file."""
        view = self.admin_site.admin_view
        return [
            path("list/", view(self.list_view), name=self.page_name("list")),
            path("lines/", view(self.lines_view), name=self.page_name("lines")),
            *super().get_urls(),
        ]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the causes; with a filter, for actions, and where works are hidden, the plain list."""
        context, hides = extra_context or {}, self.hides_works(request)
        if context.get("is_plain") or request.method == "POST" or request.GET or hides:
            causes_url = None if hides else self.address("changelist")
            return super().changelist_view(request, {"causes_url": causes_url, **context})
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        return self.causes_view(request)

    def list_view(self, request: HttpRequest) -> HttpResponse:
        """Show the plain list, with what a subclass adds to its lists."""
        return self.changelist_view(request, {"is_plain": True})

    # By cause

    def causes_view(self, request: HttpRequest) -> HttpResponse:
        """Show why works are dead."""
        found, are_more = causes()
        links, may = Links(self.admin_site, request), self.acts_of(request)
        context = {
            "title": _("Dead letters by cause"),
            "is_list": True,
            "causes": [self.card(cause, may, links) for cause in found],
            "most": MOST if are_more else None,
            "list_url": self.address("list"),
        }
        return self.framed(request, "causes.html", context)

    def card(self, cause: Cause, may: Collection[str], links: Links) -> dict[str, Any]:
        """Return a cause as its part of the page: texts, and the addresses that the user may open."""
        filter = {"type": cause.type, "reason": cause.reason, "cause": cause.cause}
        now, query = clock.now(), urlencode(filter)
        return {
            "heading": pages.printable(normalised(cause.error)) or _("no error was kept"),
            "type": pages.type_name(cause.type),
            "reason": lists.reason(Work(reason=cause.reason)),
            "works": f"{number_text(cause.counted)}+" if cause.is_capped else number_text(cause.works),
            "first": pages.moment(cause.first, now),
            "last": pages.moment(cause.last, now),
            "example": links.work(cause.example, pages.short(cause.example)),
            "list_url": f"{self.address('list')}?{query}",
            "export_url": f"{self.address('lines')}?{query}",
            "acts": self.acts_on(cause, filter, may, links),
        }

    def acts_on(
        self, cause: Cause, filter: Mapping[str, str], may: Collection[str], links: Links
    ) -> list[tuple[str, str]]:
        """Return the texts and addresses of what the user may do about a cause."""

        def in_bulk(what: str) -> str | None:
            asked = {"action": what, "status": str(Status.DEAD), **filter}
            return bulk_address(self.admin_site, urlencode(asked))

        found: list[tuple[str, str | None]] = []
        if "retry" in may:
            found.append((_("Retry all…"), in_bulk("retry")))
        if "edit" in may and cause.type != GATE_TYPE:
            found.append((_("Edit and retry…"), links.address(Work, "edit", cause.example)))
        if "delete_chains" in may:
            found.append((_("Delete all…"), in_bulk("delete_chains")))
        return [(text, url) for text, url in found if url is not None]

    def acts_of(self, request: HttpRequest) -> set[str]:
        """Return what the user may do about causes: act on all works of one, edit an example."""
        bulk_admin = admin_of(self.admin_site, BulkAction)
        asked = ("retry", "delete_chains") if isinstance(bulk_admin, BulkActionAdmin) else ()
        found = {name for name in asked if bulk_admin.may(ACTS[name], request)}
        return found | ({"edit"} if self.may_edit(request, None) else set())

    # As a file

    def lines_view(self, request: HttpRequest) -> HttpResponseBase:
        """Return the dead works that match as lines of JSON, the longest dead first."""
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        _action, filter = plain_filter(request.GET)
        try:
            chosen = selection_of(filter, {Status.DEAD}, clock.now())
        except ValueError as error:
            return HttpResponse(str(error), status=400, content_type="text/plain; charset=utf-8")
        lines = self.exported(request, chosen)
        response = StreamingHttpResponse(lines, content_type="application/x-ndjson; charset=utf-8")
        response["Content-Disposition"] = 'attachment; filename="dead-letters.jsonl"'
        return response

    def exported(self, request: HttpRequest, chosen: Selection) -> Iterator[str]:
        """Yield a line for each work that the user's list shows, page by page."""
        for ids in chosen.pages(EXPORT_PAGE):
            known = {work.pk: work for work in self.get_queryset(request).filter(id__in=ids)}
            yield "".join(line_of(known[id]) for id in ids if id in known)


#: The columns of an exported work, besides its input.
EXPORTED = (
    *("id", "type", "queue", "reason", "cause", "error", "attempt"),
    *("group_id", "parent_id", "chain_id", "unit"),
)
MOMENTS = ("queued_at", "started_at", "ended_at")


def line_of(work: Work) -> str:
    """Return a work as a line of JSON, without the parts of its input that are redacted."""
    shown = input_for_people(work.type, work.input, decode_options(work.options).redact)
    try:
        given = json.loads(shown)
    except ValueError:
        given = shown
    moments = {name: getattr(work, name) for name in MOMENTS}
    values = {
        **{name: getattr(work, name) for name in EXPORTED},
        **{name: moment and moment.isoformat() for name, moment in moments.items()},
        "input": given,
    }
    return json.dumps(values) + "\n"
