"""Works and dead letters: their lists, and the page of a work."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.db.models.functions import Left
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_ayework.admin import lists, pages
from django_ayework.admin.actions import (
    ACTS,
    ActingAdmin,
    cancel_selected,
    delete_chains_selected,
    retry_selected,
)
from django_ayework.admin.pages import Fact, Links, Page, Section, Table, boxed, linked, shown
from django_ayework.define.registry import registry
from django_ayework.define.requests import GATE_TYPE, GateRequest, WorkRequest
from django_ayework.errors import NotDecodable
from django_ayework.flow.explain import explain_row
from django_ayework.flow.gates import StoredRequest, decode_releases
from django_ayework.flow.payloads import codec_of, input_for_people, releases_for_people
from django_ayework.flow.requests import StoredOptions, decode_options
from django_ayework.models import Attempt, DeadLetter, Edge, Waiter, Work
from django_ayework.models.work import OUTCOME_LABELS
from django_ayework.rules.conditions import condition_from_plain
from django_ayework.rules.explain.reasons import duration
from django_ayework.rules.states import Outcome, Status
from django_ayework.store.database import rows
from django_ayework.store.generated_columns import ENDED_AT, ended_as
from django_ayework.store.rows import COLUMNS, WorkRow

#: Watched works, waiters and releases that a page shows.
SHOWN = 100
#: Attempts that a page shows, the last ones: a work that defers itself may have any number.
SHOWN_ATTEMPTS = 50


@admin.register(Work)
class WorkAdmin(ActingAdmin):
    """Works, the newest first.

    The change permission allows retrying and cancelling works, the delete permission deleting their chains.
    """

    retry_permissions: tuple[str, ...] = ("django_ayework.change_work",)
    cancel_permissions: tuple[str, ...] = ("django_ayework.change_work",)
    delete_permissions: tuple[str, ...] = ("django_ayework.delete_work",)
    lookups = frozenset({"id__lt", "group_id", "unit"})
    deferred = ("input", "result", "error")

    actions: Any = (retry_selected, cancel_selected, delete_chains_selected)
    change_form_template = "admin/django_ayework/work_page.html"
    list_display: Any = (
        lists.short_id,
        lists.type_and_error,
        lists.standing,
        lists.attempt,
        lists.queued,
        lists.run,
        lists.ended,
        "queue",
        "priority",
    )
    list_filter: ClassVar[Any] = (
        lists.StatusFilter,
        lists.ReasonFilter,
        lists.TypeFilter,
        lists.QueueFilter,
    )
    ordering: ClassVar[Any] = ("-id",)
    search_fields = ("id",)  # the columns that are searched are those of get_search_results()
    search_help_text = lists.SEARCH_HELP

    def for_list(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Return works without inputs and results, and with the beginning of the error."""
        light: QuerySet[Any] = super().for_list(rows).annotate(error_start=Left("error", 200))
        return light

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Return the list that looks at a bounded number of works."""
        return lists.WorkChangeList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Find works by columns with an index, and by type."""
        term = search_term.strip()
        return (lists.search(queryset, term) if term else queryset), False

    def has_retry_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Tell whether the user may retry works, or this one; override it to decide by work."""
        return has_any(request, self.retry_permissions)

    def has_cancel_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Tell whether the user may cancel works, or this one; override it to decide by work."""
        return has_any(request, self.cancel_permissions)

    def has_delete_chains_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Tell whether the user may delete chains, or that of this work; override it to decide by work.

        Rows by themselves cannot be deleted.
        """
        return has_any(request, self.delete_permissions)

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the list; refuse actions of a user who may run none."""
        if request.method == "POST" and not self.get_actions(request):
            raise PermissionDenied
        return super().changelist_view(request, extra_context)

    def page_context(self, request: HttpRequest, obj: Work) -> dict[str, Any]:
        """Return the work's page, its buttons, and the link to its history."""
        links = Links(self.admin_site, request)
        page = {"page": work_page(obj, links), "history_url": links.history(obj.pk)}
        return {**page, **self.buttons(request, obj)}

    def is_open_to(self, what: str, obj: Work) -> bool:
        """Tell whether the work can be, for example, "retried"."""
        return obj.status in ACTS[what].statuses

    def may_act(self, what: str, request: HttpRequest, obj: Work | None) -> bool:
        """Tell whether the user may, for example, "retry" this work."""
        return bool(getattr(self, f"has_{what}_permission")(request, obj))

    def act(self, what: str, request: HttpRequest, obj: Work) -> None:
        """Act on a work."""
        ACTS[what].act_for(self, request, [obj])

    def address_after(self, request: HttpRequest, obj: Work) -> str:
        """Return the work's page, or else the list, or the first page, as far as the user may open them."""
        links = Links(self.admin_site, request)
        shown = links.address(Work, "change", obj.pk) or links.address(self.model, "changelist")
        return shown or reverse("admin:index", current_app=self.admin_site.name)


@admin.register(DeadLetter)
class DeadLetterAdmin(WorkAdmin):
    """Dead works, the last to die first; a work that is retried or deleted leaves the list."""

    retry_permissions: tuple[str, ...] = ("django_ayework.change_deadletter", "django_ayework.change_work")
    delete_permissions: tuple[str, ...] = ("django_ayework.delete_deadletter", "django_ayework.delete_work")

    actions: Any = (retry_selected, delete_chains_selected)
    list_display: Any = (
        lists.short_id,
        lists.type_and_error,
        lists.reason,
        lists.attempt,
        lists.died,
    )
    list_filter: ClassVar[Any] = (lists.ReasonFilter, lists.TypeFilter)
    ordering: ClassVar[Any] = (ENDED_AT.desc(), "-id")
    sortable_by = (lists.died.__name__,)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the dead, in words that lead the database to their index."""
        return ended_as(super().get_queryset(request), Status.DEAD)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Return the plain list: an index leads to the dead."""
        return lists.LightChangeList


def has_any(request: HttpRequest, permissions: tuple[str, ...]) -> bool:
    """Tell whether the user has one of these permissions."""
    user: Any = request.user
    return any(user.has_perm(permission) for permission in permissions)


# The page of a work


def work_page(work: Work, links: Links) -> Page:
    """Return a work's page."""
    options = decode_options(work.options)
    sections = [
        why(work),
        *([Section(_("Error"), [Fact("", boxed(work.error), wide=True)])] if work.error else []),
        identity(work, links),
        *waiting(work, links),
        *(released(work, links) if work.type == GATE_TYPE else [data(work, options)]),
        course(work, options),
        *attempts(work),
        *awaited_by(work.id, links),
    ]
    return Page(format_html("{} {} {}", work.type, lists.status(work.status), lists.reason(work)), sections)


def why(work: Work) -> Section:
    """Return why the work is not running, in the words of ``explain()``."""
    row = WorkRow._make(getattr(work, column) for column in COLUMNS)
    return Section(_("Why"), [Fact("", reason.text, wide=True) for reason in explain_row(row).reasons])


def identity(work: Work, links: Links) -> Section:
    """Return which work this is."""
    unit = []
    if work.unit is not None:
        unit = [Fact(_("unit"), linked(links.works_where(type=work.type, unit=work.unit), work.unit))]
    return Section(
        _("Work"),
        [
            Fact(_("id"), work.id),
            Fact(_("type"), work.type),
            *unit,
            Fact(_("queue"), work.queue),
            Fact(_("priority"), str(work.priority)),
            Fact(_("fairness"), work.fairness or pages.NOTHING),
            Fact(_("about"), links.about(work.about_type, work.about_id)),
            Fact(_("queued by"), links.work(work.parent_id)),
            Fact(_("group"), links.group(work.group_id)),
        ],
    )


def data(work: Work, options: StoredOptions) -> Section:
    """Return the input, as far as people may see it, and the result."""
    codec = codec_of(registry.find(work.type))
    given = input_for_people(work.type, work.input, options.redact)
    facts = [
        Fact(_("input"), shown(given, codec), wide=True),
        Fact(_("result"), shown(work.result, codec), wide=True),
    ]
    return Section(_("Data"), facts)


def course(work: Work, options: StoredOptions) -> Section:
    """Return how the work is run, and how that went so far."""
    ended = pages.full_moment(work.ended_at)
    if work.ended_at is not None and work.started_at is not None and work.ended_at >= work.started_at:
        ended = f"{ended} ({duration((work.ended_at - work.started_at).total_seconds())})"
    return Section(
        _("Course"),
        [
            Fact(_("attempt"), lists.attempt(work)),
            Fact(_("retries"), pages.policy(options.retry)),
            Fact(_("progress"), lists.progress_of(work.progress) or pages.NOTHING),
            Fact(_("queued at"), pages.full_moment(work.queued_at)),
            Fact(_("not before"), pages.full_moment(work.run_at)),
            Fact(_("started at"), pages.full_moment(work.started_at)),
            Fact(_("ended at"), ended),
            Fact(_("deadline"), pages.full_moment(work.deadline)),
            Fact(_("timeout"), pages.optional_duration(options.timeout)),
            Fact(_("expires"), pages.optional_duration(options.expires)),
            Fact(_("worker"), work.worker or work.completed_by or pages.NOTHING),
            Fact(_("leased until"), pages.full_moment(work.leased_until)),
        ],
    )


def attempts(work: Work) -> list[Section]:
    """Return the attempts that did not succeed, the last first."""
    found = list(rows(Attempt).filter(work_id=work.id).order_by("-number", "-id")[: SHOWN_ATTEMPTS + 1])
    if not found:
        return []
    note = ""
    if len(found) > SHOWN_ATTEMPTS:
        last = ngettext("The last %(count)d attempt.", "The last %(count)d attempts.", SHOWN_ATTEMPTS)
        note = last % {"count": SHOWN_ATTEMPTS}
    headings = [_("attempt"), _("outcome"), _("error"), _("started"), _("ended"), _("worker")]
    table = Table(headings, [attempt_cells(attempt) for attempt in found[:SHOWN_ATTEMPTS]])
    return [Section(_("Attempts that did not succeed"), table=table, note=note)]


def attempt_cells(attempt: Attempt) -> list[str]:
    """Return an attempt as cells."""
    known = attempt.outcome in set(Outcome)
    worker = pages.short(attempt.worker) or pages.NOTHING
    return [
        str(attempt.number),
        str(OUTCOME_LABELS[Outcome(attempt.outcome)]) if known else attempt.outcome,
        error_of(attempt),
        pages.full_moment(attempt.started_at),
        pages.full_moment(attempt.ended_at),
        format_html('<span class="ayework-id" title="{}">{}</span>', attempt.worker, worker),
    ]


def error_of(attempt: Attempt) -> str:
    """Return an attempt's error, under which its traceback unfolds."""
    first = pages.first_line(attempt.error, 300)
    if not attempt.traceback:
        return pages.error_line(first, 300) if first else pages.NOTHING
    return format_html(
        '<details class="ayework-error"><summary>{}</summary>{}</details>',
        first or _("traceback"),
        boxed(attempt.traceback),
    )


# Dependencies, on the page of a work


def waiting(work: Work, links: Links) -> list[Section]:
    """Return the works that the work waits for, if it waits or has waited."""
    waiter = rows(Waiter).filter(work_id=work.id).first()
    if waiter is None:
        return []
    edges = list(rows(Edge).filter(waiter_id=work.id).order_by("position")[:SHOWN])
    known = works_by_id([edge.watched_id for edge in edges])
    table = Table(
        [_("waits for"), _("type"), _("outcome")],
        [watched_cells(edge, known.get(edge.watched_id), links) for edge in edges],
    )
    return [Section(_("Waits for"), tally(waiter), table, note_of(waiter.total))]


def works_by_id(ids: list[str]) -> dict[str, Work]:
    """Return those of the works that exist, with little more than their status."""
    return {work.id: work for work in rows(Work).filter(id__in=ids).only("id", "type", "status")}


def tally(waiter: Waiter) -> list[Fact]:
    """Return the condition, and the counts of the watched works."""
    text = _("%(succeeded)d of %(total)d succeeded, %(missed)d ended without success")
    counts = {"succeeded": waiter.succeeded, "total": waiter.total, "missed": waiter.missed}
    try:
        condition = pages.condition(condition_from_plain(json.loads(waiter.condition)))
    except (ValueError, TypeError):
        condition = str(waiter.condition)
    unmet = _("keeps waiting") if waiter.on_unmet == "wait" else _("dies")
    return [
        Fact(_("until"), condition),
        Fact(_("tally"), text % counts),
        Fact(_("if it can no longer be met"), unmet),
    ]


def watched_cells(edge: Edge, watched: Work | None, links: Links) -> list[str]:
    """Return a watched work as cells: its outcome, or else its status."""
    if watched is None:
        outcome = lists.status(edge.outcome) if edge.outcome else pages.NOTHING
        return [edge.watched_id, _("not known here"), outcome]
    return [links.work(watched.id), watched.type, lists.status(edge.outcome or watched.status)]


def note_of(total: int) -> str:
    """Return a note when there are more than the page shows."""
    return _("The first %(shown)d of %(total)d.") % {"shown": SHOWN, "total": total} if total > SHOWN else ""


def released(work: Work, links: Links) -> list[Section]:
    """Return the works that a gate queues when it opens."""
    try:
        requests = decode_releases(work.input)
    except NotDecodable:
        stored = boxed(releases_for_people(work.input))
        return [Section(_("Releases"), [Fact(_("as stored"), stored, wide=True)])]
    known = works_by_id([request.id for request in requests[:SHOWN]])
    table = Table(
        [_("work"), _("type"), _("input"), _("status")],
        [release_cells(request, known.get(request.id), links) for request in requests[:SHOWN]],
    )
    return [Section(_("Releases"), table=table, note=note_of(len(requests)))]


def release_cells(request: WorkRequest[object, object], work: Work | None, links: Links) -> list[str]:
    """Return a work to be released as cells; it has a page once it is queued."""
    given = ""
    if isinstance(request, StoredRequest):
        given = input_for_people(request.type, request.encoded, None)
    if isinstance(request, GateRequest):
        given = _("a gate watching %(count)d works") % {"count": len(request.watched)}
    return [
        request.id if work is None else links.work(work.id),
        request.type,
        pages.first_line(given, 120),
        pages.NOTHING if work is None else lists.status(work.status),
    ]


def awaited_by(id: str, links: Links) -> list[Section]:
    """Return the waiters of the work, if there are any."""
    edges = list(rows(Edge).filter(watched_id=id).order_by("id")[:SHOWN])
    if not edges:
        return []
    known = works_by_id([edge.waiter_id for edge in edges])
    table = Table(
        [_("work"), _("type"), _("status")],
        [waiter_cells(edge.waiter_id, known.get(edge.waiter_id), links) for edge in edges],
    )
    return [Section(_("Awaited by"), table=table)]


def waiter_cells(id: str, waiter: Work | None, links: Links) -> list[str]:
    """Return a waiter as cells."""
    if waiter is None:
        return [id, pages.NOTHING, pages.NOTHING]
    return [links.work(id), waiter.type, lists.status(waiter.status)]
