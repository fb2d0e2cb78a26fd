"""Groups: the list, and a page for each."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.exceptions import NotRegistered
from django.db.models import Case, QuerySet, Value, When
from django.db.models.functions import Left
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ayework.admin import lists, pages
from django_ayework.admin.actions import ACTS, ActingAdmin, act_on_first
from django_ayework.admin.pages import Fact, Links, Page, Section, Table, shown
from django_ayework.admin.works import WorkAdmin
from django_ayework.conf import get_settings
from django_ayework.models import Group, Work
from django_ayework.rules.states import Status
from django_ayework.store.database import rows

#: Works that the page of a group shows.
SHOWN = 100
#: Orders blocked works before all others.
IS_BLOCKED = Case(When(status=str(Status.BLOCKED), then=Value(0)), default=Value(1))


@admin.display(description=gettext_lazy("value"))
def value(group: Any) -> str:
    """The beginning of the value, as it is stored."""
    return pages.NOTHING if group.value_start is None else pages.first_line(group.value_start, 60)


@admin.register(Group)
class GroupAdmin(ActingAdmin):
    """Groups, the newest first."""

    deferred = ("value",)

    change_form_template = "admin/django_ayework/group_page.html"
    list_display = (
        lists.short_id,
        lists.group_progress,
        "total",
        "open",
        "dead",
        value,
        lists.moment_column("done_at", gettext_lazy("done at"), "done_at"),
    )
    ordering = ("-id",)
    search_fields = ("id",)  # exactly; see get_search_results()
    search_help_text = gettext_lazy("The id of a group, which is the id of its first work.")

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

    def page_context(self, request: HttpRequest, obj: Group) -> dict[str, Any]:
        """Return the group's page, and its buttons."""
        return {"page": group_page(obj, Links(self.admin_site, request)), **self.buttons(request, obj)}

    def is_open_to(self, what: str, obj: Group) -> bool:
        """Tell whether the group has works that can be, for example, "retried"."""
        if what == "cancel":
            return obj.open > 0
        statuses = [str(status) for status in ACTS[what].statuses]
        return obj.total > obj.open and rows(Work).filter(group_id=obj.id, status__in=statuses).exists()

    def may_act(self, what: str, request: HttpRequest, obj: Group | None) -> bool:
        """Tell whether the user may act on works in general; each work is asked for later."""
        works = self.works_admin()
        may = isinstance(works, WorkAdmin) and getattr(works, f"has_{what}_permission")(request)
        return may and self.has_view_or_change_permission(request, obj)

    def act(self, what: str, request: HttpRequest, obj: Group) -> None:
        """Act on those works of the group that the admin of works shows, each if the user may."""
        works = self.works_admin()
        statuses = [str(status) for status in ACTS[what].statuses]
        members = works.get_queryset(request).filter(group_id=obj.id, status__in=statuses)
        # Waiters first: those of a later page must not start because of what this page cancels.
        act_on_first(what, works, request, members.defer(*works.deferred).order_by(IS_BLOCKED, "-id"))

    def works_admin(self) -> Any:
        """Return the admin of works on this site, which decides what is shown and who may act; or None."""
        try:
            return self.admin_site.get_model_admin(Work)
        except NotRegistered:
            return None


# The page of a group


def group_page(group: Group, links: Links) -> Page:
    """Return a group's page."""
    return Page(_("Group %(id)s") % {"id": group.id}, [standing(group, links), members(group, links)])


def standing(group: Group, links: Links) -> Section:
    """Return how the group stands."""
    return Section(
        _("Group"),
        [
            Fact(_("first work"), links.work(group.id)),
            Fact(_("done"), lists.group_progress(group)),
            Fact(_("open"), str(group.open)),
            Fact(_("dead"), str(group.dead)),
            Fact(_("done at"), pages.full_moment(group.done_at)),
            Fact(_("value is final"), _("yes") if group.final else _("no")),
            Fact(_("value"), shown(group.value, get_settings().codec), wide=True),
        ],
    )


def members(group: Group, links: Links) -> Section:
    """Return the first works of the group, and the way to the others."""
    works = rows(Work).filter(group_id=group.id).order_by("id").defer("input", "result", "error")
    found = list(works.annotate(error_start=Left("error", 200))[:SHOWN])
    table = Table(
        [_("work"), _("type"), _("status"), _("attempt"), _("ended"), _("error")],
        [member_cells(work, links) for work in found],
    )
    note = _("The first %(shown)d of %(total)d.") if group.total > SHOWN else ""
    return Section(
        _("Works"),
        table=table,
        note=note and note % {"shown": SHOWN, "total": group.total},
        more=links.works_where(group_id=group.id),
    )


def member_cells(work: Work, links: Links) -> list[str]:
    """Return a work of the group as cells."""
    return [
        format_html('<span class="ayework-id">{}</span>', links.work(work.id, pages.short(work.id))),
        work.type,
        lists.status(work.status),
        lists.attempt(work),
        lists.ended(work),
        lists.error(work),
    ]
