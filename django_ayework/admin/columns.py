"""Columns, filters and search of the lists."""

from __future__ import annotations

import json
import re
from typing import Any, TypeAlias

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from django_ayework.admin import pages
from django_ayework.define.registry import registry
from django_ayework.define.requests import GATE_TYPE
from django_ayework.flow.requests import DEFAULT_QUEUE, decode_options
from django_ayework.models import Group, Work
from django_ayework.models.work import REASON_CHOICES, REASON_LABELS, STATUS_CHOICES, STATUS_LABELS
from django_ayework.rules.states import Reason, Status
from django_ayework.store.clock import clock
from django_ayework.store.database import rows
from django_ayework.store.rows import with_status

# --- columns ---
# Columns of the lists.


@admin.display(description=_("id"))
def short_id(row: Any) -> str:
    """The id, shortened; in full on hovering."""
    return format_html('<span class="ayework-id" title="{}">{}</span>', row.pk, pages.short(row.pk))


@admin.display(description=_("type"))
def type_and_error(work: Any) -> str:
    """The type, the unit, and the first line of the last error."""
    named = str(work.type) if work.unit is None else format_html("{}<br><b>{}</b>", work.type, work.unit)
    return format_html("{}<br>{}", named, error(work)) if work.error_start else named


@admin.display(description=_("status"))
def status(work: Work) -> str:
    """The status in its colour."""
    return badge(work.status)


@admin.display(description=_("status"))
def standing(work: Work) -> str:
    """The status; of a dead work the reason too, of a running one how far it is."""
    more = progress_of(work.progress) if work.status == Status.RUNNING else reason(work)
    return format_html("{}<br><small>{}</small>", status(work), more) if more else status(work)


def badge(status: str) -> str:
    """Return a status as HTML."""
    known = status in set(Status)
    label = STATUS_LABELS[Status(status)] if known else status
    return format_html(
        '<span class="ayework-status ayework-{}">{}</span>', status if known else "unknown", label
    )


@admin.display(description=_("reason"))
def reason(work: Work) -> str:
    """Why a dead work died."""
    return str(REASON_LABELS[Reason(work.reason)]) if work.reason in set(Reason) else work.reason


@admin.display(description=_("attempt"))
def attempt(work: Work) -> str:
    """Which attempt of how many; a gate is never attempted."""
    if work.type == GATE_TYPE:
        return pages.NOTHING
    most = decode_options(work.options).retry.attempts
    return format_html('<span class="ayework-narrow">{} / {}</span>', work.attempt, most)


def progress_of(text: str | None) -> str:
    """Return stored progress as HTML."""
    try:
        told = json.loads(text or "{}")
        done, total, note = told.get("done"), told.get("total"), told.get("note") or ""
    except (ValueError, AttributeError):
        return text or ""
    if done is None:
        return ""
    if not total:
        return format_html("{} {}", done, note)
    return format_html(
        '<span class="ayework-narrow">{} {} / {}</span> {}', bar(done, total), done, total, note
    )


def bar(done: float, total: float) -> str:
    """Return a bar as HTML."""
    return format_html('<progress class="ayework-bar" value="{}" max="{}"></progress>', done, total)


def group_progress(group: Group) -> str:
    """Return how many works of a group have ended, as a bar and in figures."""
    over = group.total - group.open
    drawn = bar(over, max(group.total, 1))
    return format_html('<span class="ayework-narrow">{} {} / {}</span>', drawn, over, group.total)


@admin.display(description=_("queued"))
def queued(work: Work) -> str:
    """When the work was queued."""
    return pages.moment(work.queued_at, clock.now())


@admin.display(description=_("run"))
def run(work: Work) -> str:
    """When the last attempt started; for a work that waits, when it may."""
    waits = work.status in (Status.SCHEDULED, Status.PENDING) or work.started_at is None
    return pages.moment(work.run_at if waits else work.started_at, clock.now())


@admin.display(description=_("ended"))
def ended(work: Work) -> str:
    """When the work ended."""
    return pages.moment(work.ended_at, clock.now())


@admin.display(description=_("died"), ordering="ended_at")
def died(work: Work) -> str:
    """When the work died."""
    return pages.moment(work.ended_at, clock.now())


@admin.display(description=_("error"))
def error(work: Any) -> str:
    """The first line of the last error."""
    return format_html('<span class="ayework-error">{}</span>', pages.first_line(work.error_start, 140))


# --- filters ---
# Filters with declared choices: none of them asks the table what there is.

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
        """Only dead works have a reason, and their status has an index."""
        return queryset.filter(status=Status.DEAD, reason=value)


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


# --- search ---
# Finding works by what has an index, or by their type.

HELP = _(
    "The id of a work or of a group, the beginning of a type, "
    "the object a work is about, such as shop.order:17, or a unit of a type, such as site.fetch:page/7."
)

ABOUT = re.compile(r"(?P<label>[\w.-]+):(?P<key>.+)")


def search(works: QuerySet[Any], term: str) -> QuerySet[Any]:
    """Return the works that the term names."""
    if about := ABOUT.fullmatch(term):
        label = about["label"].lower()
        of_unit = Q(type=about["label"], unit=about["key"])
        return works.filter(Q(about_type=label, about_id=about["key"]) | of_unit | named(term))
    return works.filter(type__startswith=term) if is_by_type(term) else works.filter(named(term))


def named(term: str) -> Q:
    """Return the condition that finds a work or the works of a group by id."""
    return Q(id=term) | Q(group_id=term)


def is_by_type(term: str) -> bool:
    """Tell whether the term is the beginning of a type, and not an id that looks like one."""
    return looks_like_type(term) and not rows(Work).filter(named(term)).exists()


def looks_like_type(term: str) -> bool:
    """Tell whether the term may begin a type's name; a type without code is known by its dot."""
    if ABOUT.fullmatch(term):
        return False
    return "." in term or any(name.startswith(term) for name in (GATE_TYPE, *registry.names()))
