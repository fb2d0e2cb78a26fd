"""Worker processes: their list, their pages, and the buttons that tell one what to do."""

from __future__ import annotations

from typing import Any, ClassVar, cast

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext_lazy

from django_ayework import fragments
from django_ayework.admin import lists, pages
from django_ayework.admin.buttons import LoggedButton, LoggedButtonsAdmin, selection_of
from django_ayework.admin.pages import Fact, Links, Page, Section, Table
from django_ayework.flow.controls import Command, command_worker
from django_ayework.flow.explain import GONE_AFTER
from django_ayework.models import Work, WorkerProcess
from django_ayework.rules.states import Status
from django_ayework.store.database import clock, rows

#: Running works that the page of a worker shows.
SHOWN = 50

#: The colour and the word of each state, and the word before the moment of it.
STATES: dict[str, tuple[str, Any, Any]] = {
    "stopped": ("stopped", gettext_lazy("stopped"), gettext_lazy("at {}")),
    "silent": ("silent", gettext_lazy("silent"), gettext_lazy("since {}")),
    "stopping": ("scheduled", gettext_lazy("stopping"), gettext_lazy("seen {}")),
    "trouble": ("silent", gettext_lazy("trouble"), gettext_lazy("seen {}")),
    "quiet": ("blocked", gettext_lazy("quiet"), gettext_lazy("seen {}")),
    "alive": ("alive", gettext_lazy("alive"), gettext_lazy("seen {}")),
}
TOLD = ngettext_lazy("%(count)d worker was told.", "%(count)d workers were told.", "count")
QUIET = LoggedButton(
    "quiet",
    gettext_lazy("Quiet"),
    gettext_lazy("Claim no more works; running works continue."),
    logged=gettext_lazy("Told to be quiet; it was %(state)s."),
    said=gettext_lazy("The worker %(name)s was told to be quiet: it obeys at its next poll."),
    selected=gettext_lazy("Quiet selected workers"),
    counted=TOLD,
)
RESUME = LoggedButton(
    "resume",
    gettext_lazy("Resume"),
    gettext_lazy("Claim works again."),
    logged=gettext_lazy("Told to resume; it was %(state)s."),
    said=gettext_lazy("The worker %(name)s was told to resume: it obeys at its next poll."),
    selected=gettext_lazy("Resume selected workers"),
    counted=TOLD,
)
STOP = LoggedButton(
    "stop",
    gettext_lazy("Stop"),
    gettext_lazy("Let running works end, then stop."),
    logged=gettext_lazy("Told to stop; it was %(state)s."),
    said=gettext_lazy("The worker %(name)s was told to stop: it lets its works end first."),
    selected=gettext_lazy("Stop selected workers"),
    counted=TOLD,
)


# States


def state_of(process: WorkerProcess) -> str:
    """Return how a worker stands: the key of one of ``STATES``."""
    if process.stopped_at is not None:
        return "stopped"
    if clock.now() - process.seen_at > GONE_AFTER:
        return "silent"
    if process.command == "stop":
        return "stopping"
    if process.trouble:
        return "trouble"
    return "quiet" if process.quiet else "alive"


def intended(process: WorkerProcess) -> str:
    """Return what the worker was told last, obeyed or not: resume, quiet or stop."""
    return process.command or ("quiet" if process.quiet else "resume")


# Columns


@admin.display(description=gettext_lazy("state"))
def process_state(process: WorkerProcess) -> str:
    """The state of the process by its heartbeat, and a command that it has not obeyed yet."""
    state = state_of(process)
    kind, word, since = STATES[state]
    moment = format_html(str(since), pages.moment(process.stopped_at or process.seen_at, clock.now()))
    told = ""
    if process.command and state not in ("stopping", "stopped"):
        told = _("told: %(command)s") % {"command": pages.choice_label(process, "command")}
    return format_html("{} <small>{} {}</small>", pages.badge(kind, word), moment, told)


@admin.display(description=gettext_lazy("name"))
def name(process: WorkerProcess) -> str:
    """The name, or else the end of the id."""
    return pages.short_in_full(process.pk, process.name)


@admin.display(description=gettext_lazy("queues"))
def queues(process: WorkerProcess) -> str:
    """The queues it serves."""
    return process.queues or _("all")


@admin.display(description=gettext_lazy("running"))
def running(process: WorkerProcess) -> str:
    """How many works it runs of how many at a time, as a bar and in figures."""
    figures = f"{process.running} / {process.concurrency}"
    drawn = lists.bar(process.running, max(process.concurrency, 1), _("running"))
    return format_html('<span class="ayework-narrow">{} <span>{}</span></span>', drawn, figures)


# The page


def standing(process: WorkerProcess) -> Section:
    """Return what the worker is, and how it stands."""
    trouble = [Fact(_("trouble"), process.trouble, wide=True)] if process.trouble else []
    facts = [
        Fact(_("state"), process_state(process)),
        Fact(_("id"), process.pk),
        Fact(_("host"), process.host),
        Fact(_("process id"), str(process.pid)),
        Fact(_("queues"), queues(process)),
        Fact(_("running"), running(process)),
        Fact(_("version"), process.version or pages.NOTHING),
        Fact(_("started at"), pages.full_moment(process.started_at)),
        Fact(_("last seen"), pages.full_moment(process.seen_at)),
        Fact(_("stopped at"), pages.full_moment(process.stopped_at)),
    ]
    return Section(_("Worker"), [*trouble, *facts])


def in_flight(process: WorkerProcess, links: Links) -> Section:
    """Return the works that the worker has claimed, the longest running first."""
    held = rows(Work).filter(status=Status.RUNNING, leased_until__isnull=False, worker=process.pk)
    found = list(held.only("id", "type", "started_at", "progress").order_by("started_at", "id")[: SHOWN + 1])
    if not found:
        return Section(_("Claimed works"), note=_("The worker has claimed no works."))
    headings = [_("work"), _("type"), _("started"), _("progress")]
    table = Table(headings, [work_cells(work, links) for work in found[:SHOWN]])
    note = _("The first %(count)d.") % {"count": SHOWN} if len(found) > SHOWN else ""
    return Section(_("Claimed works"), table=table, note=note)


def work_cells(work: Work, links: Links) -> list[str]:
    """Return a running work as cells."""
    return [
        links.short_work(work.id),
        work.type,
        pages.moment(work.started_at, clock.now()),
        lists.progress_of(work.progress) or pages.NOTHING,
    ]


# The list


class LifeFilter(admin.SimpleListFilter):
    """By whether the worker has stopped."""

    title, parameter_name = gettext_lazy("state"), "stopped"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """Return the values to choose from."""
        return [("no", gettext_lazy("not stopped")), ("yes", gettext_lazy("stopped"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the workers that match."""
        if self.value() not in ("no", "yes"):
            return queryset
        return queryset.filter(stopped_at__isnull=self.value() == "no")


@admin.register(WorkerProcess)
class WorkerProcessAdmin(LoggedButtonsAdmin, lists.LiveAdmin):
    """Workers, the last started first. Commands need the change permission."""

    looks = ("pages",)
    scripts = (fragments.SCRIPT,)
    buttons = (QUIET, RESUME, STOP)
    actions: Any = tuple(map(selection_of, buttons))
    change_form_template = "admin/django_ayework/buttons_page.html"
    list_display: Any = (
        name,
        process_state,
        running,
        queues,
        "host",
        "pid",
        "version",
        lists.moment_column("started_at", gettext_lazy("started"), "started"),
    )
    list_filter: ClassVar[Any] = (LifeFilter,)
    ordering: ClassVar[Any] = ("-id",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the workers; their heartbeats are compared with the database's clock, which wrote them."""
        clock.synchronise()
        return super().get_queryset(request)

    def live_context(self, request: HttpRequest, obj: WorkerProcess) -> dict[str, Any]:
        """Return the sections of a worker's page."""
        sections = [standing(obj), in_flight(obj, Links(self.admin_site, request))]
        return {"page": Page(obj.name or str(obj), sections)}

    def may_refresh(self, request: HttpRequest, obj: WorkerProcess | None) -> bool:
        """Refuse an id that does not exist as a worker that the user may not look at."""
        return obj is not None and super().may_refresh(request, obj)

    def page_context(self, request: HttpRequest, obj: WorkerProcess) -> dict[str, Any]:
        """Return the worker's page and its buttons."""
        return {
            **self.live_context(request, obj),
            "buttons": self.shown_buttons(request, obj),
            "history_url": self.address("history", obj.pk),
            "live_url": self.address("live", obj.pk) if obj.stopped_at is None else None,
        }

    def offers(self, button: LoggedButton, obj: WorkerProcess) -> bool:
        """Tell whether a command would change what the worker was told last."""
        if obj.stopped_at is not None or intended(obj) == "stop":
            return False
        return button.name != intended(obj)

    def state_in_words(self, obj: WorkerProcess) -> Any:
        """Return the state of a worker."""
        return STATES[state_of(obj)][1]

    def carry_out(self, name: str, obj: WorkerProcess) -> bool:
        """Write the command."""
        command_worker(obj.pk, cast("Command", name))
        return True
