"""Filters of lists of works: their choices, a filter in words, and the link to act on all that match.

The choices are declared, or found by a few entries of an index.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, QueryDict
from django.utils.formats import date_format
from django.utils.timezone import localdate
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_ayework.admin import pages
from django_ayework.admin.actions import action_named
from django_ayework.admin.lists import declared_queues
from django_ayework.admin.pages import Links, found_address
from django_ayework.define.requests import GATE_TYPE
from django_ayework.define.types import registry
from django_ayework.flow import bulk_actions
from django_ayework.flow.drawing import number_text
from django_ayework.models import BulkAction, WorkerProcess
from django_ayework.models.work import REASON_CHOICES, STATUS_CHOICES
from django_ayework.rules.states import Status
from django_ayework.store.database import clock, rows
from django_ayework.store.rows import with_status
from django_ayework.store.selection import COUNTED, day_of, of_worker, pending_names

Choices: TypeAlias = list[tuple[str, Any]]

#: Queues, labels and workers that are offered besides those that code declares.
OFFERED = 20
#: Days that are offered.
DAYS = 8


def known_queues() -> Choices:
    """Return the queues that the registered types name, the default one, and the first that are in use."""
    return [(queue, queue) for queue in sorted({*declared_queues(), *pending_names("queue", OFFERED)})]


def live_workers() -> Choices:
    """Return the workers that have not stopped, the last to start first."""
    alive = rows(WorkerProcess).filter(stopped_at=None).order_by("-started_at")
    found = alive.values_list("id", "name", "host")[:OFFERED]
    return [(id, f"{name or host} {pages.short(id)}") for id, name, host in found]


def last_days() -> Choices:
    """Return the last days."""
    today = localdate(clock.now())
    days = [today - timedelta(days=ago) for ago in range(DAYS)]
    return [(day.isoformat(), date_format(day, "j M Y")) for day in days]


class ColumnFilter(admin.SimpleListFilter):
    """Works whose column of the parameter's name has the chosen value, of those that are ``offered``."""

    offered: Callable[[], Choices]

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        """Return the values to choose from, and the one that is chosen by a link."""
        offered = self.offered()
        chosen = self.value()
        if offered and chosen and chosen not in {value for value, _ in offered}:
            offered = [*offered, (chosen, chosen)]
        return offered

    def has_output(self) -> bool:
        """Tell whether the filter applies; it is shown then, too."""
        return bool(self.lookup_choices) or self.value() is not None

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the works that match."""
        value = self.value()
        return queryset if value is None else self.chosen(queryset, value)

    def chosen(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        """Return the works that have this value."""
        return queryset.filter(**{str(self.parameter_name): value})


class StatusFilter(ColumnFilter):
    """By status."""

    title, parameter_name = gettext_lazy("status"), "status"
    offered = staticmethod(lambda: list(STATUS_CHOICES))

    def chosen(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        """Return works of the status, by a condition that its index serves."""
        return with_status(queryset, value)


class ReasonFilter(ColumnFilter):
    """By the reason of death."""

    title, parameter_name = gettext_lazy("reason"), "reason"
    offered = staticmethod(lambda: list(REASON_CHOICES))

    def chosen(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        """Only dead works have a reason; the status leads the database to their index."""
        return super().chosen(with_status(queryset, Status.DEAD), value)


class TypeFilter(ColumnFilter):
    """By type, of those that the running code knows."""

    title, parameter_name = gettext_lazy("type"), "type"
    offered = staticmethod(lambda: [(name, pages.type_name(name)) for name in (*registry.names(), GATE_TYPE)])


class QueueFilter(ColumnFilter):
    """By queue, of those that the registered types name, and those in which works are pending."""

    title, parameter_name = gettext_lazy("queue"), "queue"
    offered = staticmethod(known_queues)


class WorkerFilter(ColumnFilter):
    """By the worker that runs a work or has ended it, of those that are alive."""

    title, parameter_name = gettext_lazy("worker"), "worker"
    offered = staticmethod(live_workers)

    def chosen(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        """Return the works that the worker runs, or has ended."""
        return queryset.filter(of_worker(value))


class FairnessFilter(ColumnFilter):
    """By fairness label, of those that pending works have."""

    title, parameter_name = gettext_lazy("fairness label"), "fairness"
    offered = staticmethod(lambda: [(label, label) for label in pending_names("fairness", OFFERED)])


class DayFilter(ColumnFilter):
    """By the day on which works were queued."""

    title, parameter_name = gettext_lazy("day"), "day"
    offered = staticmethod(last_days)

    def chosen(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        """Return the works of a day; all works for a text that is no day."""
        return queryset.filter(**queued_on(value))


class OlderFilter(ColumnFilter):
    """No choice: the place from which a list goes on, in the addresses of its links."""

    title, parameter_name = gettext_lazy("older"), "older"
    offered = staticmethod(lambda: list[tuple[str, Any]]())

    def has_output(self) -> bool:
        """Show nothing; the list itself reads the place."""
        return False


def queued_on(day: str) -> dict[str, datetime]:
    """Return the condition that a work was queued on a day; none for a text that is no day."""
    try:
        return day_of(day)
    except (ValueError, OverflowError):
        return {}


# Filters in words, and bulk actions, which act on all works that match one

#: The labels of the parameters of a filter.
LABELS = {
    "status": gettext_lazy("status"),
    "type": gettext_lazy("type"),
    "queue": gettext_lazy("queue"),
    "reason": gettext_lazy("reason"),
    "cause": gettext_lazy("error"),
    "worker": gettext_lazy("worker"),
    "fairness": gettext_lazy("label"),
    "priority": gettext_lazy("priority"),
    "unit": gettext_lazy("unit"),
    "group_id": gettext_lazy("group"),
    "chain_id": gettext_lazy("chain"),
    "parent_id": gettext_lazy("queued by"),
    "about_type": gettext_lazy("about objects of"),
    "about_id": gettext_lazy("about the object"),
    "day": gettext_lazy("queued on"),
    "ids": gettext_lazy("ids"),
}
CHOICES = {"status": dict(STATUS_CHOICES), "reason": dict(REASON_CHOICES)}
#: Parameters of a list's address that choose no works.
OF_LISTS = frozenset({"p", "o", "all", "e", "_changelist_filters", "_popup", "_to_field", "_facets"})
#: Ids that a filter in words names.
IDS_NAMED = 3


def plain_filter(query: QueryDict) -> tuple[str, dict[str, Any]]:
    """Return the name of the act and the filter of an address; ``ids`` may come often, or with commas."""
    given: dict[str, Any] = {name: value for name, value in query.items() if name not in OF_LISTS}
    action = str(given.pop("action", ""))
    if "ids" in given:
        given["ids"] = [id for text in query.getlist("ids") for id in str(text).split(",") if id]
    return action, given


def filter_in_words(
    filter: Mapping[str, Any], links: Links | None = None, error: str = ""
) -> list[tuple[str, str]]:
    """Return a filter as labels and values; the cause as the error that its works share, or shared."""
    if not filter:
        return [(_("works"), _("all"))]
    return [(str(LABELS.get(name, name)), value_in_words(name, filter, links, error)) for name in filter]


def value_in_words(name: str, filter: Mapping[str, Any], links: Links | None, error: str) -> str:
    """Return one value of a filter."""
    value = filter[name]
    if name in CHOICES:
        return str(CHOICES[name].get(value, value))
    if name == "ids":
        more = len(value) - IDS_NAMED
        named = ", ".join(map(str, value[:IDS_NAMED]))
        return named if more <= 0 else _("%(ids)s and %(count)d more") % {"ids": named, "count": more}
    if name == "cause":
        return pages.printable(error or bulk_actions.error_of_cause(filter)) or str(value)
    if name == "group_id" and links is not None:
        return links.group(value)
    return str(value)


def number_of(count: int | None) -> str:
    """Return a number of works, as far as it is known."""
    if count is None or count == bulk_actions.UNKNOWN:
        return _("all matching works")
    if count > COUNTED:
        return _("more than %(count)s works") % {"count": number_text(COUNTED)}
    text = ngettext("%(number)s work", "%(number)s works", count)
    return text % {"number": number_text(count)}


def title_of(row: BulkAction) -> str:
    """Return what a bulk action does to how many works."""
    action = action_named(row.action)
    label = row.action if action is None else action.label
    return title_with(label, row.expected)


def title_with(label: Any, count: int | None) -> str:
    """Return the title of an action on so many works."""
    return _("%(act)s: %(number)s") % {"act": label, "number": number_of(count)}


def bulk_address(site: Any, query: str) -> str | None:
    """Return the address of the page for a new bulk action, or None on a site without that page."""
    page = found_address(site, "django_ayework_bulkaction_new")
    return page and f"{page}?{query}"
