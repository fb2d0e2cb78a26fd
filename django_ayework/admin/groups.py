"""Groups: the list, and a page for each."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.db.models.functions import Left
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext_lazy as _

from django_ayework.admin import columns, words
from django_ayework.admin.base import ReadOnlyAdmin
from django_ayework.admin.group_page import group_page
from django_ayework.admin.links import Links
from django_ayework.models import Group
from django_ayework.store.clock import clock


@admin.display(description=_("done"))
def done(group: Group) -> str:
    """How many works have ended, as a bar and in figures."""
    return columns.group_progress(group)


@admin.display(description=_("value"))
def value(group: Any) -> str:
    """The beginning of the value, as it is stored."""
    return words.NOTHING if group.value_start is None else words.first_line(group.value_start, 60)


@admin.display(description=_("done at"))
def done_at(group: Group) -> str:
    """When the last work ended."""
    return words.moment(group.done_at, clock.now())


@admin.register(Group)
class GroupAdmin(ReadOnlyAdmin):
    """Groups, the newest first."""

    deferred = ("value",)

    change_form_template = "admin/django_ayework/page.html"
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
        context["page"] = group_page(obj, Links(self.admin_site, request))
        return super().render_change_form(request, context, add, change, form_url, obj)
