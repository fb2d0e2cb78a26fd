"""The filters of lists of works. Their choices are declared, or found by a few entries of an index."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from typing import Any, TypeAlias

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.formats import date_format
from django.utils.timezone import localdate, make_aware
from django.utils.translation import gettext_lazy as _

from django_ayework.admin import pages
from django_ayework.admin.lists import declared_queues
from django_ayework.define.requests import GATE_TYPE
from django_ayework.define.types import registry
from django_ayework.models import WorkerProcess
from django_ayework.models.work import REASON_CHOICES, STATUS_CHOICES
from django_ayework.rules.states import Status
from django_ayework.store.clock import clock
from django_ayework.store.database import rows
from django_ayework.store.rows import with_status
from django_ayework.store.selection import pending_names

Choices: TypeAlias = list[tuple[str, Any]]

#: Queues, labels and workers that are offered besides those that code declares.
OFFERED = 20
#: Days that are offered.
DAYS = 8


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

    title, parameter_name = _("status"), "status"
    offered = staticmethod(lambda: list(STATUS_CHOICES))

    def chosen(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        """Return works of the status, by a condition that its index serves."""
        return with_status(queryset, value)


class ReasonFilter(ColumnFilter):
    """By the reason of death."""

    title, parameter_name = _("reason"), "reason"
    offered = staticmethod(lambda: list(REASON_CHOICES))

    def chosen(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        """Only dead works have a reason; the status leads the database to their index."""
        return super().chosen(with_status(queryset, Status.DEAD), value)


class TypeFilter(ColumnFilter):
    """By type, of those that the running code knows."""

    title, parameter_name = _("type"), "type"
    offered = staticmethod(lambda: [(name, pages.type_name(name)) for name in (*registry.names(), GATE_TYPE)])


class QueueFilter(ColumnFilter):
    """By queue, of those that the registered types name, and those in which works are pending."""

    title, parameter_name = _("queue"), "queue"
    offered = staticmethod(lambda: [(queue, queue) for queue in known_queues()])


class WorkerFilter(ColumnFilter):
    """By the worker that runs a work or has ended it, of those that are alive."""

    title, parameter_name = _("worker"), "worker"
    offered = staticmethod(lambda: live_workers())

    def chosen(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        """Return the works that the worker runs, or has ended."""
        return queryset.filter(Q(worker=value) | Q(completed_by=value))


class FairnessFilter(ColumnFilter):
    """By fairness label, of those that pending works have."""

    title, parameter_name = _("fairness label"), "fairness"
    offered = staticmethod(lambda: [(label, label) for label in pending_names("fairness", OFFERED)])


class DayFilter(ColumnFilter):
    """By the day on which works were queued."""

    title, parameter_name = _("day"), "day"
    offered = staticmethod(lambda: last_days())

    def chosen(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        """Return the works of a day; all works for a text that is no day."""
        span = span_of(value)
        return queryset if span is None else queryset.filter(queued_at__gte=span[0], queued_at__lt=span[1])


class OlderFilter(ColumnFilter):
    """No choice: the place from which a list goes on, in the addresses of its links."""

    title, parameter_name = _("older"), "older"
    offered = staticmethod(lambda: list[tuple[str, Any]]())

    def has_output(self) -> bool:
        """Show nothing; the list itself reads the place."""
        return False


def known_queues() -> list[str]:
    """Return the queues that the registered types name, the default one, and the first that are in use."""
    return sorted({*declared_queues(), *pending_names("queue", OFFERED)})


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


def span_of(day: str) -> tuple[datetime, datetime] | None:
    """Return the first moment of a day, and of the next one; None for a text that is no day."""
    try:
        first = date.fromisoformat(day)
        return make_aware(datetime.combine(first, time.min)), make_aware(
            datetime.combine(first + timedelta(days=1), time.min)
        )
    except (ValueError, OverflowError):
        return None
