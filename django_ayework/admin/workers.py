"""Worker processes: the list, and a page for each."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ayework.admin import lists, pages
from django_ayework.flow.overview import GONE_AFTER
from django_ayework.models import WorkerProcess
from django_ayework.store.clock import clock


@admin.display(description=gettext_lazy("state"))
def state(process: WorkerProcess) -> str:
    """Whether the process is alive, by its heartbeat."""
    if process.stopped_at is not None:
        kind, word, since, at = "stopped", _("stopped"), _("at {}"), process.stopped_at
    elif clock.now() - process.seen_at > GONE_AFTER:
        kind, word, since, at = "silent", _("silent"), _("since {}"), process.seen_at
    else:
        kind, word, since, at = "alive", _("alive"), _("seen {}"), process.seen_at
    moment = format_html(since, pages.moment(at, clock.now()))
    return format_html("{} <small>{}</small>", pages.badge(kind, word), moment)


@admin.display(description=gettext_lazy("queues"))
def queues(process: WorkerProcess) -> str:
    """The queues it serves."""
    return process.queues or _("all")


@admin.display(description=gettext_lazy("running"))
def running(process: WorkerProcess) -> str:
    """How many works it runs, and its concurrency."""
    return f"{process.running} / {process.concurrency}"


@admin.register(WorkerProcess)
class WorkerProcessAdmin(lists.ReadOnlyAdmin):
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
    list_display = (
        lists.short_id,
        "host",
        "pid",
        "name",
        queues,
        running,
        lists.moment_column("started_at", gettext_lazy("started"), "started"),
        state,
    )
    ordering = ("-id",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the workers; their heartbeats are compared with the database's clock, which wrote them."""
        clock.synchronise()
        return super().get_queryset(request)
