"""The page of a work."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_ayework.admin import lists, pages
from django_ayework.admin.graph import chain_section
from django_ayework.admin.pages import Fact, Links, Page, Section, Table, boxed, in_words, linked, shown
from django_ayework.admin.work_timeline import timeline
from django_ayework.define.requests import GATE_TYPE, GateRequest, WorkRequest
from django_ayework.define.types import registry
from django_ayework.errors import NotDecodable
from django_ayework.flow.explain import explain_row
from django_ayework.flow.payloads import (
    StoredOptions,
    StoredRequest,
    codec_of,
    decode_options,
    decode_releases,
    input_for_people,
    releases_for_people,
)
from django_ayework.flow.states import gate_of
from django_ayework.models import Attempt, Edge, Group, InputRevision, Waiter, Work, WorkerProcess
from django_ayework.models.work import OUTCOME_LABELS
from django_ayework.rules.explain import Reason
from django_ayework.rules.formatting import duration
from django_ayework.rules.states import Outcome
from django_ayework.store.database import clock, rows
from django_ayework.store.rows import COLUMNS, WorkRow

#: Watched works, waiters and releases that a page shows.
SHOWN = 100
#: Members of a group among which the works are looked for that a work has queued.
LOOKED_THROUGH = 10_000
#: Former inputs that a page shows, the last ones.
SHOWN_REVISIONS = 20
#: Matches an id or a name in a sentence.
WORD = re.compile(r"[^\s,;()'\"]*[^\s,;()'\".:]")
#: Attempts that a page shows, the last ones: a work that defers itself may have any number.
SHOWN_ATTEMPTS = 50


# The page of a work


def work_page(work: Work, links: Links) -> Page:
    """Return a work's page."""
    options = decode_options(work.options)
    tried = last_attempts(work)
    sections = [
        why(work, links),
        *([Section(_("Error"), [Fact("", boxed(work.error), wide=True)])] if work.error else []),
        *course_drawn(work, tried),
        identity(work, links),
        relatives(work, options, links),
        *chain_section(work, links),
        *waiting(work, links),
        *(released(work, links) if work.type == GATE_TYPE else [data(work, options)]),
        *former_inputs(work, options),
        course(work, links),
        resolved(work, options),
        *attempts(tried, links),
        *awaited_by(work.id, links),
        *children(work, links),
    ]
    return Page(
        format_html("{} {} {}", pages.type_name(work.type), lists.status(work.status), lists.reason(work)),
        sections,
    )


def why(work: Work, links: Links) -> Section:
    """Return why the work is not running, in the words of ``explain()``, with links to works and workers."""
    row = WorkRow._make(getattr(work, column) for column in COLUMNS)
    reasons = explain_row(row).reasons
    texts = [in_words(reason.text) for reason in reasons]
    named = (names_in(text, reason) for text, reason in zip(texts, reasons, strict=True))
    addresses = addresses_of(set().union(*named), links)
    return Section(_("Why"), [Fact("", with_links(text, addresses), wide=True) for text in texts])


def names_in(text: str, reason: Reason) -> set[str]:
    """Return the words of a reason's text that are among its facts, such as ids."""
    told = set(texts_in(reason.facts.values()))
    return told.intersection(WORD.findall(text))


def texts_in(values: Iterable[Any]) -> Iterator[str]:
    """Yield the texts in nested facts."""
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            yield from texts_in(value.values())
        elif isinstance(value, (list, tuple)):
            yield from texts_in(value)


def addresses_of(names: set[str], links: Links) -> dict[str, str]:
    """Return the addresses of the works and workers among some names, as far as the user may open them."""
    if not names:
        return {}
    works = rows(Work).filter(id__in=names).values_list("id", flat=True)
    workers = rows(WorkerProcess).filter(id__in=names).values_list("id", flat=True)
    found = {id: links.address(Work, "change", id) for id in works}
    found |= {id: links.address(WorkerProcess, "change", id) for id in workers}
    return {name: address for name, address in found.items() if address is not None}


def with_links(text: str, addresses: Mapping[str, str]) -> str:
    """Return a text in which some names are links, as HTML."""
    parts = re.split(f"({WORD.pattern})", text)
    return format_html_join("", "{}", ((linked(addresses.get(part), part),) for part in parts))


def course_drawn(work: Work, tried: Sequence[Attempt]) -> list[Section]:
    """Return the timeline of a work, unless nothing has happened yet."""
    drawing = timeline(work, tried[:SHOWN_ATTEMPTS][::-1], clock.now())
    return [Section(_("Timeline"), [Fact("", drawing, wide=True)])] if drawing else []


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
        ],
    )


def relatives(work: Work, options: StoredOptions, links: Links) -> Section:
    """Return the links to what the work belongs to."""
    facts = [
        Fact(_("about"), links.about(work.about_type, work.about_id)),
        Fact(_("queued by"), links.work(work.parent_id)),
        Fact(_("group"), links.group(work.group_id)),
    ]
    if work.chain_id is not None:
        step = _("step %(number)d of the chain %(id)s") % {
            "number": work.chain_index + 1,
            "id": work.chain_id,
        }
        facts.append(Fact(_("chain"), linked(links.works_where(q=work.chain_id), step)))
    if (gate := gate_of(work, options)) is not None:
        facts.append(Fact(_("released by the gate"), links.work(gate)))
    return Section(_("Belongs to"), facts)


def children(work: Work, links: Links) -> list[Section]:
    """Return the works that the work has queued into its group, unless that is too large to look through."""
    group = rows(Group).filter(id=work.group_id).first() if work.group_id else None
    if group is None:
        return []
    title, more = _("Queued by it"), links.works_where(group_id=group.id)
    if group.total > LOOKED_THROUGH:
        note = _("The group has %(count)d works, too many to look through.") % {"count": group.total}
        return [Section(title, note=note, more=more)]
    members = rows(Work).filter(group_id=group.id, parent_id=work.id).order_by("id")
    found = list(members.only("id", "type", "status")[: SHOWN + 1])
    cells = [work_cells(each.id, each, links) for each in found[:SHOWN]]
    note = _("The first %(shown)d.") % {"shown": SHOWN} if len(found) > SHOWN else ""
    return pages.listing(title, Table([_("work"), _("type"), _("status")], cells), note, more)


def data(work: Work, options: StoredOptions) -> Section:
    """Return the input, as far as people may see it, and the result."""
    codec = codec_of(registry.find(work.type))
    given = input_for_people(work.type, work.input, options.redact)
    facts = [
        Fact(_("input"), shown(given, codec), wide=True),
        Fact(_("result"), shown(work.result, codec), wide=True),
    ]
    return Section(_("Data"), facts)


def former_inputs(work: Work, options: StoredOptions) -> list[Section]:
    """Return the inputs that were edited, the last first, as far as people may see them."""
    revisions = rows(InputRevision).filter(work_id=work.id).order_by("-id")[:SHOWN_REVISIONS]
    codec = codec_of(registry.find(work.type))
    cells = [
        [
            pages.full_moment(revision.replaced_at),
            revision.replaced_by or pages.NOTHING,
            shown(input_for_people(work.type, revision.input, options.redact), codec),
        ]
        for revision in revisions
    ]
    return pages.listing(_("Former inputs"), Table([_("until"), _("edited by"), _("input")], cells))


def resolved(work: Work, options: StoredOptions) -> Section:
    """Return the options of the work as they were resolved when it was queued."""
    return Section(
        _("Options as resolved"),
        [
            Fact(_("retries"), pages.policy(options.retry)),
            Fact(_("timeout"), pages.optional_duration(options.timeout)),
            Fact(_("expires"), pages.optional_duration(options.expires)),
            Fact(_("deadline"), pages.full_moment(work.deadline)),
            Fact(_("lease"), pages.optional_duration(options.lease)),
            Fact(_("redacted"), ", ".join(options.redact) or pages.NOTHING),
        ],
    )


def course(work: Work, links: Links) -> Section:
    """Return how the work went so far."""
    ended = pages.full_moment(work.ended_at)
    if work.ended_at is not None and work.started_at is not None and work.ended_at >= work.started_at:
        ended = f"{ended} ({duration((work.ended_at - work.started_at).total_seconds())})"
    return Section(
        _("Course"),
        [
            Fact(_("attempt"), lists.attempt(work)),
            Fact(_("progress"), lists.progress_of(work.progress) or pages.NOTHING),
            Fact(_("queued at"), pages.full_moment(work.queued_at)),
            Fact(_("not before"), pages.full_moment(work.run_at)),
            Fact(_("started at"), pages.full_moment(work.started_at)),
            Fact(_("ended at"), ended),
            Fact(_("worker"), worker_link(work.worker or work.completed_by, links)),
            Fact(_("leased until"), pages.full_moment(work.leased_until)),
        ],
    )


def worker_link(id: str | None, links: Links, text: str | None = None) -> str:
    """Return a link to a worker, or a dash for none."""
    return pages.NOTHING if not id else linked(links.address(WorkerProcess, "change", id), text or id)


def last_attempts(work: Work) -> list[Attempt]:
    """Return the attempts that did not succeed, the last first, and at most one more than a page shows."""
    return list(rows(Attempt).filter(work_id=work.id).order_by("-ended_at", "-id")[: SHOWN_ATTEMPTS + 1])


def attempts(found: Sequence[Attempt], links: Links) -> list[Section]:
    """Return the recorded attempts, the last first: those that did not succeed, or all for some types."""
    note = ""
    if len(found) > SHOWN_ATTEMPTS:
        last = ngettext("The last %(count)d attempt.", "The last %(count)d attempts.", SHOWN_ATTEMPTS)
        note = last % {"count": SHOWN_ATTEMPTS}
    headings = [_("attempt"), _("outcome"), _("error"), _("started"), _("ended"), _("worker")]
    are_all = any(attempt.outcome == Outcome.SUCCESS for attempt in found)
    title = _("Attempts") if are_all else _("Attempts that did not succeed")
    cells = [attempt_cells(attempt, links) for attempt in found[:SHOWN_ATTEMPTS]]
    return pages.listing(title, Table(headings, cells), note)


def attempt_cells(attempt: Attempt, links: Links) -> list[str]:
    """Return an attempt as cells."""
    worker = worker_link(attempt.worker, links, pages.short(attempt.worker))
    return [
        str(attempt.number),
        str(OUTCOME_LABELS.get(attempt.outcome, attempt.outcome)),
        error_of(attempt),
        pages.full_moment(attempt.started_at),
        pages.full_moment(attempt.ended_at),
        pages.short_in_full(attempt.worker, worker),
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
    unmet = _("keeps waiting") if waiter.on_unmet == "wait" else _("dies")
    return [
        Fact(_("until"), pages.condition(waiter)),
        Fact(_("tally"), text % counts),
        Fact(_("when its condition can no longer be met"), unmet),
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
    ids = list(rows(Edge).filter(watched_id=id).order_by("id").values_list("waiter_id", flat=True)[:SHOWN])
    known = works_by_id(ids)
    cells = [work_cells(each, known.get(each), links) for each in ids]
    return pages.listing(_("Awaited by"), Table([_("work"), _("type"), _("status")], cells))


def work_cells(id: str, work: Work | None, links: Links) -> list[str]:
    """Return a work as cells; None stands for one that does not exist."""
    if work is None:
        return [id, pages.NOTHING, pages.NOTHING]
    return [links.work(id), work.type, lists.status(work.status)]
