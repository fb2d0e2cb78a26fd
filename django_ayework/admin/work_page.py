"""The page of a work."""

from __future__ import annotations

import json

from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_ayework.admin import columns, pages
from django_ayework.admin.pages import Fact, Links, Page, Section, Table, boxed, linked, shown
from django_ayework.define.registry import registry
from django_ayework.define.requests import GATE_TYPE, GateRequest, WorkRequest
from django_ayework.errors import NotDecodable
from django_ayework.flow.explain import explain_row
from django_ayework.flow.gates import StoredRequest, decode_releases
from django_ayework.flow.payloads import codec_of, input_for_people, releases_for_people
from django_ayework.flow.requests import StoredOptions, decode_options
from django_ayework.models import Attempt, Edge, Waiter, Work
from django_ayework.models.work import OUTCOME_LABELS
from django_ayework.rules.conditions import condition_from_plain
from django_ayework.rules.states import Outcome
from django_ayework.rules.texts import duration
from django_ayework.store.database import rows
from django_ayework.store.rows import COLUMNS, WorkRow

# --- waiting ---
# The works that a work waits for, and those that wait for it.

#: Watched works, waiters and releases that a page shows.
SHOWN = 100


def waiting(work: Work, links: Links) -> list[Section]:
    """Return what the work waits for, if it waits or has waited."""
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
    """Return the condition, and how the watched works stand."""
    stands = _("%(succeeded)d of %(total)d succeeded, %(missed)d ended without success")
    counts = {"succeeded": waiter.succeeded, "total": waiter.total, "missed": waiter.missed}
    unmet = _("keeps waiting") if waiter.on_unmet == "wait" else _("dies")
    return [
        Fact(_("until"), condition_of(waiter)),
        Fact(_("tally"), stands % counts),
        Fact(_("if it can no longer be met"), unmet),
    ]


def condition_of(waiter: Waiter) -> str:
    """Return the condition as words; as it is stored, when it cannot be read."""
    try:
        return pages.condition(condition_from_plain(json.loads(waiter.condition)))
    except (ValueError, TypeError):
        return str(waiter.condition)


def watched_cells(edge: Edge, watched: Work | None, links: Links) -> list[str]:
    """Return a watched work as cells: how it ended, else how it stands."""
    if watched is None:
        return [
            edge.watched_id,
            _("not known here"),
            columns.badge(edge.outcome) if edge.outcome else pages.NOTHING,
        ]
    return [links.work(watched.id), watched.type, columns.badge(edge.outcome or watched.status)]


def note_of(total: int) -> str:
    """Return a note when there are more than the page shows."""
    return _("The first %(shown)d of %(total)d.") % {"shown": SHOWN, "total": total} if total > SHOWN else ""


def released(work: Work, links: Links) -> list[Section]:
    """Return what a gate releases: the works it queues when it opens."""
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
        pages.NOTHING if work is None else columns.status(work),
    ]


def awaited_by(id: str, links: Links) -> list[Section]:
    """Return who waits for the work, if anybody does."""
    edges = list(rows(Edge).filter(watched_id=id).order_by("id")[:SHOWN])
    if not edges:
        return []
    known = works_by_id([edge.waiter_id for edge in edges])
    table = Table(
        [_("work"), _("type"), _("status")],
        [waiter_cells(edge, known.get(edge.waiter_id), links) for edge in edges],
    )
    return [Section(_("Awaited by"), table=table)]


def waiter_cells(edge: Edge, waiter: Work | None, links: Links) -> list[str]:
    """Return a waiter as cells."""
    if waiter is None:
        return [edge.waiter_id, pages.NOTHING, pages.NOTHING]
    return [links.work(waiter.id), waiter.type, columns.status(waiter)]


# --- work page ---
# The page of a work: what stands where.

#: Attempts that a page shows, the last ones: a work that defers itself may have any number.
SHOWN_ATTEMPTS = 50


def work_page(work: Work, links: Links) -> Page:
    """Return a work's page."""
    options = decode_options(work.options)
    is_gate = work.type == GATE_TYPE
    sections = [
        why(work),
        *failure(work),
        identity(work, links),
        *waiting(work, links),
        *(released(work, links) if is_gate else [data(work, options)]),
        course(work, options),
        *attempts(work),
        *awaited_by(work.id, links),
    ]
    headline = format_html("{} {} {}", work.type, columns.status(work), columns.reason(work))
    return Page(headline, sections)


def why(work: Work) -> Section:
    """Return why the work is not running, in the words that ``explain`` has for it."""
    row = WorkRow._make(getattr(work, column) for column in COLUMNS)
    reasons = explain_row(row).reasons
    return Section(_("Why"), [Fact("", reason.text, wide=True) for reason in reasons])


def failure(work: Work) -> list[Section]:
    """Return the last error, if there is one."""
    return [Section(_("Error"), [Fact("", boxed(work.error), wide=True)])] if work.error else []


def identity(work: Work, links: Links) -> Section:
    """Return which work this is."""
    return Section(
        _("Work"),
        [
            Fact(_("id"), work.id),
            Fact(_("type"), work.type),
            *unit(work, links),
            Fact(_("queue"), work.queue),
            Fact(_("priority"), str(work.priority)),
            Fact(_("fairness"), work.fairness or pages.NOTHING),
            Fact(_("about"), links.about(work.about_type, work.about_id)),
            Fact(_("queued by"), links.work(work.parent_id)),
            Fact(_("group"), links.group(work.group_id)),
        ],
    )


def unit(work: Work, links: Links) -> list[Fact]:
    """Return what the work is about within its type, with a link to all works of this unit."""
    if work.unit is None:
        return []
    return [Fact(_("unit"), linked(links.works_where(type=work.type, unit=work.unit), work.unit))]


def data(work: Work, options: StoredOptions) -> Section:
    """Return what the work was given, as far as people may see it, and what it brought."""
    codec = codec_of(registry.find(work.type))
    given = input_for_people(work.type, work.input, options.redact)
    return Section(
        _("Data"),
        [
            Fact(_("input"), shown(given, codec), wide=True),
            Fact(_("result"), shown(work.result, codec), wide=True),
        ],
    )


def course(work: Work, options: StoredOptions) -> Section:
    """Return how the work is run, and how that went so far."""
    return Section(
        _("Course"),
        [
            Fact(_("attempt"), columns.attempt(work)),
            Fact(_("retries"), pages.policy(options.retry)),
            Fact(_("progress"), columns.progress_of(work.progress) or pages.NOTHING),
            Fact(_("queued at"), pages.full_moment(work.queued_at)),
            Fact(_("not before"), pages.full_moment(work.run_at)),
            Fact(_("started at"), pages.full_moment(work.started_at)),
            Fact(_("ended at"), ending(work)),
            Fact(_("deadline"), pages.full_moment(work.deadline)),
            Fact(_("timeout"), pages.optional_duration(options.timeout)),
            Fact(_("expires"), pages.optional_duration(options.expires)),
            Fact(_("worker"), work.worker or work.completed_by or pages.NOTHING),
            Fact(_("leased until"), pages.full_moment(work.leased_until)),
        ],
    )


def ending(work: Work) -> str:
    """Return when the work ended, and how long its last attempt took."""
    if work.ended_at is None or work.started_at is None or work.ended_at < work.started_at:
        return pages.full_moment(work.ended_at)
    took = duration((work.ended_at - work.started_at).total_seconds())
    return f"{pages.full_moment(work.ended_at)} ({took})"


def attempts(work: Work) -> list[Section]:
    """Return the attempts that did not succeed, the last first."""
    found = list(rows(Attempt).filter(work_id=work.id).order_by("-number", "-id")[: SHOWN_ATTEMPTS + 1])
    if not found:
        return []
    headings = [_("attempt"), _("outcome"), _("error"), _("started"), _("ended"), _("worker")]
    note = ""
    if len(found) > SHOWN_ATTEMPTS:
        last = ngettext("The last %(count)d attempt.", "The last %(count)d attempts.", SHOWN_ATTEMPTS)
        note = last % {"count": SHOWN_ATTEMPTS}
    table = Table(headings, [attempt_cells(attempt) for attempt in found[:SHOWN_ATTEMPTS]])
    return [Section(_("Attempts that did not succeed"), table=table, note=note)]


def attempt_cells(attempt: Attempt) -> list[str]:
    """Return an attempt as cells; its traceback unfolds."""
    known = attempt.outcome in set(Outcome)
    return [
        str(attempt.number),
        str(OUTCOME_LABELS[Outcome(attempt.outcome)]) if known else attempt.outcome,
        unfolding(attempt),
        pages.full_moment(attempt.started_at),
        pages.full_moment(attempt.ended_at),
        short_worker(attempt),
    ]


def short_worker(attempt: Attempt) -> str:
    """Return who ran an attempt, shortened; in full on hovering."""
    short = pages.short(attempt.worker) or pages.NOTHING
    return format_html('<span class="ayework-id" title="{}">{}</span>', attempt.worker, short)


def unfolding(attempt: Attempt) -> str:
    """Return an attempt's error, under which its traceback unfolds."""
    first = pages.first_line(attempt.error, 300)
    if not attempt.traceback:
        return format_html('<span class="ayework-error">{}</span>', first) if first else pages.NOTHING
    return format_html(
        '<details class="ayework-error"><summary>{}</summary>{}</details>',
        first or _("traceback"),
        boxed(attempt.traceback),
    )
