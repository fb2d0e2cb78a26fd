"""Gates: those that wait, how far each is, and two buttons: open now, give up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext_lazy

from django_ayework.admin import lists, pages
from django_ayework.admin.action_execution import selection_of
from django_ayework.admin.actions import ACTS, ObjectAction
from django_ayework.admin.works import WorkAdmin
from django_ayework.define.requests import GATE_TYPE
from django_ayework.flow.graph import standing_of
from django_ayework.models import Gate, Waiter
from django_ayework.models.work import STATUS_LABELS
from django_ayework.rules.states import Status, is_terminal
from django_ayework.store.database import rows
from django_ayework.store.rows import with_status

HAD_ENDED = ngettext_lazy(
    "%(count)d gate had ended or was gone already.",
    "%(count)d gates had ended or were gone already.",
    "count",
)
OPEN = ObjectAction(
    name="open",
    label=gettext_lazy("Open now"),
    selected=gettext_lazy("Open selected gates now"),
    permission="change_work",
    act="complete",
    done=ngettext_lazy("%(count)d gate was opened.", "%(count)d gates were opened.", "count"),
    sentence=gettext_lazy("Opened by hand. It was %(status)s."),
    untouched=HAD_ENDED,
)
GIVE_UP = ObjectAction(
    name="give_up",
    label=gettext_lazy("Give up"),
    selected=gettext_lazy("Give up selected gates"),
    permission="cancel",
    act="cancel",
    done=ngettext_lazy("%(count)d gate was given up.", "%(count)d gates were given up.", "count"),
    sentence=gettext_lazy("Given up by hand. It was %(status)s."),
    untouched=HAD_ENDED,
)
#: The words for the statuses that a gate can have.
STANDINGS: Mapping[str, Any] = {
    Status.BLOCKED: gettext_lazy("waiting"),
    Status.SUCCESS: gettext_lazy("opened"),
    Status.DEAD: STATUS_LABELS[Status.DEAD],
    Status.CANCELLED: STATUS_LABELS[Status.CANCELLED],
}


# Columns


@admin.display(description=gettext_lazy("opens when"))
def condition(gate: Any) -> str:
    """The condition, in words. The list has read what the gate waits for."""
    return pages.NOTHING if gate.waiter is None else pages.condition(gate.waiter)


@admin.display(description=gettext_lazy("how far"))
def how_far(gate: Any) -> str:
    """How many of the works that it needs have ended as they should, as a bar and in figures."""
    if gate.waiter is None:
        return pages.NOTHING
    reach = standing_of(gate.waiter)
    done, needed, missed = reach.reached, reach.needed, reach.missed
    text = _("%(done)d of %(needed)d") % {"done": done, "needed": needed}
    more = _("%(count)d without success") % {"count": missed} if missed else ""
    return format_html(
        '<span class="ayework-narrow">{} {}</span><br><small>{}</small>',
        lists.bar(min(done, needed), max(needed, 1), _("how far")),
        text,
        more,
    )


@admin.display(description=gettext_lazy("status"))
def standing(gate: Any) -> str:
    """Whether it waits, has opened, or never will."""
    if gate.status not in STANDINGS:
        return lists.status(gate.status)
    more = lists.reason(gate)
    badge = pages.badge(gate.status, STANDINGS[gate.status])
    return format_html("{}<br><small>{}</small>", badge, more) if more else badge


@admin.display(description=gettext_lazy("group"))
def group(gate: Any) -> str:
    """The group that it belongs to, shortened."""
    return pages.NOTHING if gate.group_id is None else pages.short_in_full(gate.group_id)


# The list


class StandingFilter(admin.SimpleListFilter):
    """Gates that wait, unless others are chosen. Each choice has an index."""

    title, parameter_name = gettext_lazy("status"), "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """Return the statuses to choose from."""
        return [(str(status), word) for status, word in STANDINGS.items()]

    def choices(self, changelist: Any) -> Iterator[Any]:
        """Return the choices without one for all: no index has them in order."""
        _everything, *others = super().choices(changelist)
        if self.value() is None and not changelist.query:
            others[0]["selected"] = True
        yield from others

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the gates of the status; a search without one looks at all."""
        if self.value() is None and request.GET.get("q"):
            return queryset
        return with_status(queryset, self.value() or Status.BLOCKED)


class GateChangeList(lists.LightChangeList):
    """A list of gates, with what each waits for."""

    def get_results(self, request: HttpRequest) -> None:
        """Read what the gates of the page wait for, in one query."""
        super().get_results(request)
        gates = list(self.result_list)
        waiters = rows(Waiter).in_bulk([gate.pk for gate in gates]) if gates else {}
        for gate in gates:
            gate.waiter = waiters.get(gate.pk)
        self.result_list = gates


@admin.register(Gate)
class GateAdmin(WorkAdmin):
    """Gates that wait, those with a deadline first; the page of one is that of a work."""

    looks = (*WorkAdmin.looks, "pages")
    view_permissions: tuple[str, ...] = ("django_ayework.view_work", "django_ayework.change_work")

    about = MappingProxyType({"type": GATE_TYPE})
    #: The filter of the link to act on all gates, unless another status is chosen.
    fixed_filter = MappingProxyType({"type": GATE_TYPE, "status": str(Status.BLOCKED)})

    buttons = (OPEN, GIVE_UP, ACTS["retry"])
    actions: Any = tuple(map(selection_of, (OPEN, GIVE_UP)))
    shown_after = Gate
    list_display: Any = (
        lists.short_id,
        condition,
        how_far,
        standing,
        lists.moment_column("queued_at", gettext_lazy("waits since"), "waits_since"),
        lists.moment_column("deadline", gettext_lazy("deadline"), "deadline_at"),
        group,
    )
    list_filter: ClassVar[Any] = (StandingFilter,)
    ordering: ClassVar[Any] = ("deadline", "id")
    search_help_text = gettext_lazy("The id of a gate or of a group.")

    def get_ordering(self, request: HttpRequest) -> Any:
        """Order gates that wait by their deadline, those that ended by their end: each by an index."""
        status = request.GET.get("status", "")
        return ("-ended_at",) if status in set(Status) and is_terminal(Status(status)) else self.ordering

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Return the list that knows what gates wait for."""
        return GateChangeList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Find gates by id, and by group."""
        term = search_term.strip()
        return (queryset.filter(Q(id=term) | Q(group_id=term)) if term else queryset), False

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Those may look who may look at works."""
        return super().has_view_permission(request, obj) or lists.has_any(request, self.view_permissions)
