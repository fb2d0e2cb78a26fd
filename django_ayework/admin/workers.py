"""Worker processes: which are alive."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ayework.admin import columns, pages
from django_ayework.admin.lists import ReadOnlyAdmin
from django_ayework.flow.overview import GONE_AFTER
from django_ayework.models import WorkerProcess
from django_ayework.store.clock import clock


@admin.display(description=gettext_lazy("state"))
def state(process: WorkerProcess) -> str:
    """Whether the process lives, as far as its heartbeat tells."""
    now = clock.now()
    if process.stopped_at is not None:
        return life("stopped", _("stopped"), _("at {}"), process.stopped_at, now)
    if now - process.seen_at > GONE_AFTER:
        return life("silent", _("silent"), _("since {}"), process.seen_at, now)
    return life("alive", _("alive"), _("seen {}"), process.seen_at, now)


def life(kind: str, word: str, phrase: str, at: datetime, now: datetime) -> str:
    """Return a state and since when, as HTML."""
    when = format_html(phrase, pages.moment(at, now))
    return format_html(
        '<span class="ayework-status ayework-{}">{}</span> <small>{}</small>', kind, word, when
    )


@admin.display(description=gettext_lazy("queues"))
def queues(process: WorkerProcess) -> str:
    """The queues it serves."""
    return process.queues or _("all")


@admin.display(description=gettext_lazy("running"))
def running(process: WorkerProcess) -> str:
    """How many works it runs, of how many it could."""
    return f"{process.running} / {process.concurrency}"


@admin.display(description=gettext_lazy("started"))
def started(process: WorkerProcess) -> str:
    """When it started."""
    return pages.moment(process.started_at, clock.now())


@admin.register(WorkerProcess)
class WorkerProcessAdmin(ReadOnlyAdmin):
    """Workers, the last started first."""

    fields: ClassVar[Any] = (
        "id",
        "name",
        "host",
        "pid",
        state,
        queues,
        running,
        "started_at",
        "seen_at",
        "stopped_at",
        "trouble",
    )
    readonly_fields: ClassVar[Any] = (state, queues, running)
    list_display = (columns.short_id, "host", "pid", "name", queues, running, started, state)
    ordering = ("-id",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the workers, judged by the database's clock, as they wrote by it."""
        clock.synchronise()
        return super().get_queryset(request)
