"""Filters with declared choices: none of them asks the table what there is."""

from __future__ import annotations

from typing import Any, TypeAlias

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from django_ayework.define.registry import registry
from django_ayework.define.requests import GATE_TYPE
from django_ayework.flow.options import DEFAULT_QUEUE
from django_ayework.models.labels import REASON_CHOICES, STATUS_CHOICES
from django_ayework.rules.states import Status
from django_ayework.store.stand_ins import ended_as, with_status

Choices: TypeAlias = list[tuple[str, Any]]


class ColumnFilter(admin.SimpleListFilter):
    """Works whose column of the parameter's name has the chosen value."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the works that match."""
        value = self.value()
        return queryset if value is None else self.chosen(queryset, value)

    def chosen(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        """Return the works that have this value."""
        return queryset.filter(**{str(self.parameter_name): value})


class StatusFilter(ColumnFilter):
    """By status."""

    title = _("status")
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        """Return every status."""
        return list(STATUS_CHOICES)

    def chosen(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        """Return works of the status, through its index.

        Not for success: most works succeed, so the newest are found at once by walking the ids.
        """
        return super().chosen(queryset, value) if value == Status.SUCCESS else with_status(queryset, value)


class ReasonFilter(ColumnFilter):
    """By the reason of death."""

    title = _("reason")
    parameter_name = "reason"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        """Return every reason."""
        return list(REASON_CHOICES)

    def chosen(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        """Only the dead have a reason; saying so leads the database to their index."""
        return ended_as(queryset, Status.DEAD).filter(reason=value)


class TypeFilter(ColumnFilter):
    """By type, of those that the running code knows."""

    title = _("type")
    parameter_name = "type"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        """Return the registered types, and gates."""
        return [(name, name) for name in (*registry.names(), GATE_TYPE)]


class QueueFilter(ColumnFilter):
    """By queue, of those that the registered types name."""

    title = _("queue")
    parameter_name = "queue"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        """Return the queues."""
        return [(queue, queue) for queue in declared_queues()]


def declared_queues() -> list[str]:
    """Return the queues that the registered types name, and the default one."""
    return sorted({work_type.settings.queue or DEFAULT_QUEUE for work_type in registry} | {DEFAULT_QUEUE})
