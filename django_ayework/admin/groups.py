"""Groups: the list, and a page for each."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib import admin
from django.db.models import Case, OuterRef, QuerySet, Subquery, Value, When
from django.db.models.functions import Left
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ayework.admin import lists, pages
from django_ayework.admin.action_execution import AT_ONCE, Acting
from django_ayework.admin.actions import ACTS, ObjectAction
from django_ayework.admin.buttons import ButtonsAdmin
from django_ayework.admin.filters import bulk_address
from django_ayework.admin.graph import GRAPH_SCRIPT, chain_section, graph_part
from django_ayework.admin.lists import LiveAdmin
from django_ayework.admin.pages import Fact, Links, Page, Section, Table, admin_of, seen_works, shown
from django_ayework.admin.works import WorkAdmin
from django_ayework.conf import get_settings
from django_ayework.flow.graph import Workflow, read_workflow
from django_ayework.fragments import SCRIPT
from django_ayework.models import Group, Work
from django_ayework.rules.states import Status
from django_ayework.rules.workflow import by_attention
from django_ayework.store.database import rows

#: Works that the page of a group shows.
SHOWN = 100
#: Seconds between two refreshes of a page, and of that of a group with more works than ``LARGE``.
QUICK, SLOW, LARGE = 3, 10, 1000
#: Orders blocked works before all others.
IS_BLOCKED = Case(When(status=str(Status.BLOCKED), then=Value(0)), default=Value(1))


@admin.display(description=gettext_lazy("value"))
def value(group: Any) -> str:
    """The beginning of the value, as it is stored."""
    return pages.NOTHING if group.value_start is None else pages.first_line(group.value_start, 60)


@admin.display(description=gettext_lazy("first work"))
def first_work(group: Any) -> str:
    """The type of the work that began the group."""
    return pages.NOTHING if group.first_type is None else pages.type_name(group.first_type)


@admin.register(Group)
class GroupAdmin(ButtonsAdmin, LiveAdmin):
    """Groups, the newest first."""

    buttons = (ACTS["retry"], ACTS["cancel"])
    deferred = ("value",)

    change_form_template = "admin/django_ayework/group_page.html"
    live_template = "admin/django_ayework/group_live.html"
    list_display = (
        lists.short_id,
        first_work,
        lists.group_progress,
        "total",
        "open",
        "dead",
        value,
        lists.moment_column("done_at", gettext_lazy("done at"), "done_at"),
    )
    ordering = ("-id",)

    looks = ("pages", "graph")
    scripts = (SCRIPT, GRAPH_SCRIPT)
    search_fields = ("id",)  # exactly; see get_search_results()
    search_help_text = gettext_lazy("The id of a group, which is the id of its first work.")

    def for_list(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Return groups with the type of their first work and the beginning of their value."""
        first = Work.objects.filter(pk=OuterRef("pk")).values("type")
        seen = super().for_list(rows)
        light: QuerySet[Any] = seen.annotate(first_type=Subquery(first), value_start=Left("value", 80))
        return light

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Find a group by its id."""
        term = search_term.strip()
        return (queryset.filter(id=term) if term else queryset), False

    def live_context(self, request: HttpRequest, obj: Group) -> dict[str, Any]:
        """Return what the page of a group shows: its graph, and sections."""
        links = Links(self.admin_site, request)
        workflow = read_workflow(obj.pk)
        return {"graph": graph_part(workflow, links), "page": group_page(obj, workflow, links)}

    def page_context(self, request: HttpRequest, obj: Group) -> dict[str, Any]:
        """Return the group's page, and its buttons."""
        asked = request.GET.urlencode()
        live = self.address("live", obj.pk)
        return {
            **self.live_context(request, obj),
            **self.addresses(request, obj),
            "live_url": f"{live}?{asked}" if asked else live,
            "live_every": QUICK if obj.total <= LARGE else SLOW,
        }

    def addresses(self, request: HttpRequest, obj: Group) -> dict[str, str]:
        """Return the addresses of the buttons; of bulk actions, too, if one press leaves works over."""
        buttons = {button.name: button.url for button in self.shown_buttons(request, obj)}
        addresses = {f"{what}_url": url for what, url in buttons.items()}
        works = admin_of(self.admin_site, Work)
        if obj.total <= AT_ONCE or not (buttons and works.may_act_on_all(request)):
            return addresses
        asked = {what: urlencode({"action": what, "group_id": obj.pk}) for what in buttons}
        in_bulk = {what: bulk_address(self.admin_site, query) for what, query in asked.items()}
        return addresses | {f"{what}_all_url": url for what, url in in_bulk.items() if url is not None}

    def offers(self, button: ObjectAction, obj: Group) -> bool:
        """Tell whether the group has works that can be, for example, "retried"."""
        if button.name == "cancel":
            return obj.open > 0
        statuses = [str(status) for status in button.statuses]
        return obj.total > obj.open and rows(Work).filter(group_id=obj.id, status__in=statuses).exists()

    def may_press(self, button: ObjectAction, request: HttpRequest, obj: Group | None) -> bool:
        """Tell whether the user may act on works in general; each work is asked for later."""
        works = admin_of(self.admin_site, Work)
        may = isinstance(works, WorkAdmin) and works.may_press(button, request, None)
        return may and self.has_view_or_change_permission(request, obj)

    def press(self, button: ObjectAction, request: HttpRequest, obj: Group) -> None:
        """Act on those works of the group that the admin of works shows, each if the user may."""
        works = admin_of(self.admin_site, Work)
        statuses = [str(status) for status in button.statuses]
        members = works.get_queryset(request).filter(group_id=obj.id, status__in=statuses)
        # Waiters first: those of a later page must not start because of what this page cancels.
        chosen = members.defer(*works.deferred).order_by(IS_BLOCKED, "-id")
        Acting(button, works, request).act_on_first(chosen)


# The page of a group


def group_page(group: Group, workflow: Workflow, links: Links) -> Page:
    """Return a group's page."""
    root = next((member for member in workflow.own if member.id == group.id), None)
    chain = [] if root is None else chain_section(Work(id="", chain_id=root.chain), links)
    sections = [standing(group, links), *chain, members(group, workflow, links)]
    return Page(_("Group %(id)s") % {"id": group.id}, sections)


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


def members(group: Group, workflow: Workflow, links: Links) -> Section:
    """Return the works of the group that need attention first, and the way to the others.

    Works that the admin of works hides are left out, as their errors may quote what they are about.
    """
    chosen = [member.id for member in sorted(workflow.own, key=by_attention)[:SHOWN]]
    works = seen_works(links.site, links.request).filter(id__in=chosen).defer("input", "result", "error")
    found = {work.id: work for work in works.annotate(error_start=Left("error", 200))}
    table = Table(
        [_("work"), _("type"), _("status"), _("attempt"), _("ended"), _("error")],
        [member_cells(found[id], links) for id in chosen if id in found],
    )
    note = _("The first %(shown)d of %(total)d: those that need attention.") if group.total > SHOWN else ""
    return Section(
        _("Works"),
        table=table,
        note=note and note % {"shown": SHOWN, "total": group.total},
        more=links.works_where(group_id=group.id),
    )


def member_cells(work: Work, links: Links) -> list[str]:
    """Return a work of the group as cells."""
    return [
        links.short_work(work.id),
        pages.type_name(work.type),
        lists.status(work.status),
        lists.attempt(work),
        lists.ended(work),
        lists.error(work),
    ]
