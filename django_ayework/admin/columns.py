"""Columns of the lists."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import admin
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from django_ayework.admin import words
from django_ayework.define.requests import GATE_TYPE
from django_ayework.flow.options import decode_options
from django_ayework.models import Group, Work
from django_ayework.models.labels import REASON_LABELS, STATUS_LABELS
from django_ayework.rules.states import Reason, Status
from django_ayework.store.clock import clock
from django_ayework.store.stand_ins import ENDED_AT


@admin.display(description=_("id"))
def short_id(row: Any) -> str:
    """The id, shortened; in full on hovering."""
    return format_html('<span class="ayework-id" title="{}">{}</span>', row.pk, words.short(row.pk))


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
        return words.NOTHING
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
    return words.moment(work.queued_at, clock.now())


@admin.display(description=_("run"))
def run(work: Work) -> str:
    """When the last attempt started; for a work that waits, when it may."""
    waits = work.status in (Status.SCHEDULED, Status.PENDING) or work.started_at is None
    return words.moment(work.run_at if waits else work.started_at, clock.now())


@admin.display(description=_("ended"))
def ended(work: Work) -> str:
    """When the work ended."""
    return words.moment(work.ended_at, clock.now())


@admin.display(description=_("died"), ordering=ENDED_AT)
def died(work: Work) -> str:
    """When the work died."""
    return words.moment(work.ended_at, clock.now())


@admin.display(description=_("error"))
def error(work: Any) -> str:
    """The first line of the last error."""
    return format_html('<span class="ayework-error">{}</span>', words.first_line(work.error_start, 140))
