"""Who waits for whom, on the page of a work."""

from __future__ import annotations

import json

from django.utils.translation import gettext as _

from django_ayework.admin import columns, words
from django_ayework.admin.links import Links
from django_ayework.admin.payloads import boxed
from django_ayework.admin.sections import Fact, Section, Table
from django_ayework.define.requests import GateRequest, WorkRequest
from django_ayework.errors import NotDecodable
from django_ayework.flow.gate_payload import StoredRequest, decode_releases
from django_ayework.flow.redaction import input_for_people, releases_for_people
from django_ayework.models import Edge, Waiter, Work
from django_ayework.rules.conditions import condition_from_plain
from django_ayework.store.database import rows

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
        return words.condition(condition_from_plain(json.loads(waiter.condition)))
    except (ValueError, TypeError):
        return str(waiter.condition)


def watched_cells(edge: Edge, watched: Work | None, links: Links) -> list[str]:
    """Return a watched work as cells: how it ended, else how it stands."""
    if watched is None:
        return [
            edge.watched_id,
            _("not known here"),
            columns.badge(edge.outcome) if edge.outcome else words.NOTHING,
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
        words.first_line(given, 120),
        words.NOTHING if work is None else columns.status(work),
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
        return [edge.waiter_id, words.NOTHING, words.NOTHING]
    return [links.work(waiter.id), waiter.type, columns.status(waiter)]
