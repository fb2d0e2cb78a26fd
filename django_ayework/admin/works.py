"""Works and dead letters: their lists, and the page of a work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.db.models.functions import Left
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext as _

from django_ayework.admin import filters, finding, lists
from django_ayework.admin.action_execution import SELECTED, Acting
from django_ayework.admin.actions import ACTS, ObjectAction
from django_ayework.admin.edit import EditingAdmin
from django_ayework.admin.pages import Links, admin_of
from django_ayework.admin.work_page import work_page
from django_ayework.define.requests import GATE_TYPE
from django_ayework.flow.drawing import number_text
from django_ayework.models import DeadLetter, Gate, Work
from django_ayework.store.database import rows
from django_ayework.store.selection import FILTERS


@admin.register(Work)
class WorkAdmin(EditingAdmin):
    """Works, the newest first.

    Each kind of act needs a permission of its own, besides the permission to view works. A subclass may
    override ``get_queryset`` and the methods ``has_…_permission``.
    """

    retry_permissions: tuple[str, ...] = ("django_ayework.retry_work",)
    cancel_permissions: tuple[str, ...] = ("django_ayework.cancel_work",)
    change_permissions: tuple[str, ...] = ("django_ayework.change_work",)
    edit_permissions: tuple[str, ...] = ("django_ayework.edit_input_work",)
    bulk_permissions: tuple[str, ...] = ("django_ayework.bulk_work",)
    delete_permissions: tuple[str, ...] = ("django_ayework.delete_work",)

    looks: ClassVar[Sequence[str]] = ("works", "graph")
    #: The condition of the rows that this admin is about.
    about: Mapping[str, str] = MappingProxyType({})
    #: Filters that the list has by itself.
    fixed_filter: Mapping[str, str] = MappingProxyType({})
    lookups = frozenset({"group_id", "unit"})
    deferred = ("input", "result", "error")

    buttons = tuple(ACTS.values())
    actions: Any = tuple(SELECTED.values())
    #: The model whose page is shown after an act: a work that is retried is no dead letter any more.
    shown_after: type[Model] = Work
    change_list_template = "admin/django_ayework/work_list.html"
    change_form_template = "admin/django_ayework/work_page.html"
    list_display: Any = (
        lists.short_id,
        lists.type_and_place,
        lists.standing_and_attempt,
        lists.times,
    )
    list_filter: ClassVar[Any] = (
        filters.StatusFilter,
        filters.TypeFilter,
        filters.QueueFilter,
        filters.ReasonFilter,
        filters.WorkerFilter,
        filters.FairnessFilter,
        filters.DayFilter,
        filters.OlderFilter,
    )
    ordering: ClassVar[Any] = finding.NEWEST.order
    search_fields = ("id",)  # the columns that are searched are those of get_search_results()
    search_help_text = finding.SEARCH_HELP

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the rows that this admin is about; override it to hide some of them from a user."""
        return super().get_queryset(request).filter(**self.about)

    def hides_works(self, request: HttpRequest) -> bool:
        """Tell whether an override of ``get_queryset`` hides works from the user."""
        shown, all_rows = self.get_queryset(request).query, rows(self.model).filter(**self.about).query
        return shown.where != all_rows.where or shown.is_sliced or shown.combinator is not None

    def for_list(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Return works without inputs and results, and with the beginning of the error."""
        light: QuerySet[Any] = super().for_list(rows).annotate(error_start=Left("error", 200))
        return light

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Return the list that looks at a bounded number of works."""
        return finding.WorkChangeList

    def get_paginator(
        self, request: HttpRequest, queryset: QuerySet[Any], per_page: int, *args: Any, **kwargs: Any
    ) -> Any:
        """Return the pages of the list, or of the works that a bounded search has found."""
        ids = getattr(request, finding.FOUND, None)
        if ids is None:
            return super().get_paginator(request, queryset, per_page, *args, **kwargs)
        return finding.FoundPaginator(queryset, per_page, *args, ids=ids, **kwargs)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Find works by columns with an index, by the beginning of a type, or by a text."""
        search = finding.searched(request, search_term)
        return (queryset if search is None else queryset.filter(search.condition)), False

    def has_retry_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Tell whether the user may retry works, or this one; override it to decide by work."""
        return lists.has_any(request, self.retry_permissions)

    def has_cancel_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Tell whether the user may cancel works, or this one; override it to decide by work."""
        return lists.has_any(request, self.cancel_permissions)

    def has_change_work_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Tell whether the user may make works due, complete, reorder or move them, or this one."""
        return lists.has_any(request, self.change_permissions)

    def has_edit_input_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Tell whether the user may edit the input of works, or of this one; override it to decide."""
        return lists.has_any(request, self.edit_permissions)

    def has_bulk_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Tell whether the user may act on all works that match a filter."""
        return lists.has_any(request, self.bulk_permissions)

    def may_act_on_all(self, request: HttpRequest) -> bool:
        """Tell whether the user may make bulk actions.

        Workers carry them out without ``get_queryset``. So the answer is no if an admin of this site hides
        works from the user.
        """
        admins = (admin_of(self.admin_site, model) for model in (Work, DeadLetter, Gate))
        hidden = any(each.hides_works(request) for each in admins if isinstance(each, WorkAdmin))
        return not hidden and self.has_bulk_permission(request)

    def has_delete_chains_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Tell whether the user may delete chains, or that of this work; override it to decide by work.

        Rows by themselves cannot be deleted.
        """
        return lists.has_any(request, self.delete_permissions)

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the list, with a link to act on all that match; refuse actions of a user who may run none."""
        if request.method == "POST" and not self.get_actions(request):
            raise PermissionDenied
        response = super().changelist_view(request, extra_context)
        if isinstance(response, TemplateResponse) and response.context_data and "cl" in response.context_data:
            response.context_data["bulk"] = self.bulk_link(request, response.context_data["cl"])
        return response

    def bulk_link(self, request: HttpRequest, changelist: Any) -> dict[str, str] | None:
        """Return the address and the text of the link; None for a user who may not, or for other filters."""
        _action, filter = filters.plain_filter(request.GET)
        usable = filter.keys() <= FILTERS and not changelist.query and changelist.result_count
        if not usable or not self.may_act_on_all(request):
            return None
        query = QueryDict(mutable=True)
        query.update({**self.fixed_filter, **request.GET.dict()})
        for name in filters.OF_LISTS & query.keys():
            del query[name]
        address = filters.bulk_address(self.admin_site, query.urlencode())
        if address is None:
            return None
        number = number_text(changelist.result_count) + ("+" if changelist.paginator.is_capped else "")
        text = _("Act on all %(number)s matching…") if filter else _("Act on all %(number)s…")
        return {"url": address, "text": text % {"number": number}}

    def page_context(self, request: HttpRequest, obj: Work) -> dict[str, Any]:
        """Return the work's page, its buttons, and the link to its history."""
        links = Links(self.admin_site, request)
        return {
            "page": work_page(obj, links),
            "history_url": links.address(Work, "history", obj.pk),
            "buttons": self.shown_buttons(request, obj),
            "edit_url": self.edit_url(request, obj),
        }

    def offers(self, button: ObjectAction, obj: Work) -> bool:
        """Tell whether the work can be, for example, "retried"."""
        is_possible = obj.type != GATE_TYPE or button.name != "run_again"  # a gate opens once
        return is_possible and obj.status in button.statuses

    def may_press(self, button: ObjectAction, request: HttpRequest, obj: Work | None) -> bool:
        """Tell whether the user may, for example, "retry" this work."""
        may = getattr(self, f"has_{button.permission}_permission")(request, obj)
        return bool(may) and self.has_view_or_change_permission(request, obj)

    def may_edit(self, request: HttpRequest, obj: Work | None) -> bool:
        """Tell whether the user may edit the input of this work and retry it."""
        may = self.has_edit_input_permission(request, obj) and self.has_retry_permission(request, obj)
        return may and self.has_view_or_change_permission(request, obj)

    def press(self, button: ObjectAction, request: HttpRequest, obj: Work) -> HttpResponse | None:
        """Act on a work, or return the page that asks first."""
        acting = Acting(button, self, request)
        if not button.asks:
            acting.carry_out([obj], {})
            return None
        asked = acting.ask([obj], {}, self.address("change", obj.pk))
        is_gone = asked is None and button.is_deletion and not rows(Work).filter(pk=obj.pk).exists()
        return HttpResponseRedirect(self.list_address(request)) if is_gone else asked

    def address_after(self, request: HttpRequest, obj: Work) -> str:
        """Return the page of the row, or the list, or the first page: the first that the user may open."""
        shown = Links(self.admin_site, request).address(self.shown_after, "change", obj.pk)
        return shown or self.list_address(request)

    def list_address(self, request: HttpRequest) -> str:
        """Return the list, or the first page for a user who may not open it."""
        shown = Links(self.admin_site, request).address(self.model, "changelist")
        return shown or reverse("admin:index", current_app=self.admin_site.name)
