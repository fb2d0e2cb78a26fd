"""The graph of a workflow in the admin: what holds it up, its picture, its table; a chain as a timeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.forms.widgets import Script
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.timezone import localtime
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_ayework.admin import lists, pages
from django_ayework.admin.pages import Fact, Links, Section, Table, in_words, seen_works
from django_ayework.flow.drawing import LABELS, SHAPES, Addresses, Unfolding, draw, fitting, look_of
from django_ayework.flow.graph import Held, Workflow, hold_up, is_over, standing_sentence
from django_ayework.models import Group, Work
from django_ayework.rules.explain import Explanation
from django_ayework.rules.formatting import duration
from django_ayework.rules.states import Status
from django_ayework.rules.workflow import Member, critical_path, fold
from django_ayework.store.database import clock
from django_ayework.store.rows import WorkRow, steps_from

#: The static module that moves and zooms graphs.
GRAPH_SCRIPT = Script("django_ayework/graph.js", type="module")
#: Steps of a chain that its timeline shows, and works of the critical path that are named.
STEPS, NAMED = 100, 20


def graph_part(workflow: Workflow, links: Links) -> dict[str, Any]:
    """Return the template variables by which the page of a group shows its workflow.

    Reasons may quote errors. They are left out for works that the admin of works hides.
    """
    held = hold_up(workflow)
    seen = seen_works(links.site, links.request).filter(id__in=held.reasons).values_list("id", flat=True)
    held = replace(held, reasons={id: held.reasons[id] for id in seen})
    path = critical_path(workflow.members, workflow.links)
    drawing = draw(
        workflow,
        fold(workflow.members, workflow.links),
        path,
        addresses(workflow, links),
        unfolding(links.request),
    )
    return {
        "standing": standing_sentence(workflow),
        "is_over": is_over(workflow),
        "held": [held_up(member, held, links) for member in held.holding.members],
        "more": more(workflow, held, links),
        "drawing": drawing,
        "path": path_text(path),
    }


def addresses(workflow: Workflow, links: Links) -> Addresses:
    """Return the links of a graph; nodes unfold on the page of the group."""
    page = None if workflow.group is None else links.address(Group, "change", workflow.id)

    def unfolded(member: str, number: int) -> str | None:
        asked = {"unfold": member, **({"members": str(number)} if number > 1 else {})}
        return page and f"{page}?{urlencode(asked)}#graph"

    return Addresses(
        work=lambda id: links.address(Work, "change", id),
        unfolded=unfolded,
        folded=page and f"{page}#graph",
    )


def unfolding(request: HttpRequest) -> Unfolding:
    """Return the node that a request asks to unfold; what cannot be read unfolds none."""
    asked = request.GET.get("members", "1")
    page = int(asked) if asked.isascii() and asked.isdigit() and len(asked) < 6 else 1
    return Unfolding(request.GET.get("unfold", ""), max(page, 1))


# What holds it up


def held_up(member: Member, held: Held, links: Links) -> dict[str, Any]:
    """Return a work that holds a workflow up: how, since when, and why."""
    since = {Status.DEAD: member.ended_at, Status.RUNNING: member.started_at}
    explanation: Explanation | None = held.reasons.get(member.id)
    return {
        "how": how_it_holds(member),
        "work": links.work(member.id),
        "type": pages.type_name(member.type),
        "status": lists.status(member.status),
        "since": pages.moment(since.get(Status(member.status), member.run_at), clock.now()),
        "reasons": [in_words(reason.text) for reason in explanation.reasons] if explanation else [],
        "alike": alike(held.holding.alike.get(member.id, 0)),
    }


def alike(count: int) -> str:
    """Return how many others died as a work did."""
    text = ngettext("%(count)d more died like it.", "%(count)d more died like it.", count)
    return text % {"count": count} if count else ""


def how_it_holds(member: Member) -> str:
    """Return in which way a work holds a workflow up."""
    if member.status == Status.DEAD:
        return _("dead since")
    if member.status == Status.RUNNING:
        return _("running since")
    return _("waiting since")


def more(workflow: Workflow, held: Held, links: Links) -> list[dict[str, str | None]]:
    """Return how many works beyond those that are named hold a workflow up, and where they are listed."""
    found = held.holding
    dead = len(found.dead) + sum(found.alike.values())
    named = (dead, len(found.running), len(found.waiting))
    dead, running, waiting = (total - shown for total, shown in zip(found.totals, named, strict=True))
    texts = [
        (dead, Status.DEAD, ngettext("%(count)d more is dead", "%(count)d more are dead", dead)),
        (running, Status.RUNNING, ngettext("%(count)d more runs", "%(count)d more run", running)),
        (waiting, None, ngettext("%(count)d more waits", "%(count)d more wait", waiting)),
    ]
    return [
        {"text": text % {"count": count}, "address": listed(workflow, status, links)}
        for count, status, text in texts
        if count
    ]


def listed(workflow: Workflow, status: Status | None, links: Links) -> str | None:
    """Return the address of the works of a workflow that have a status."""
    if workflow.group is None:
        return None
    of_status = {} if status is None else {"status": str(status)}
    return links.works_where(group_id=workflow.id, **of_status)


# The critical path


def path_text(path: Sequence[Member]) -> str:
    """Return the critical path in words, each work with the time from the end before it to its own."""
    if len(path) < 2:
        return ""
    spans = [
        f"{pages.type_name(member.type)} ({duration(seconds_of(path, index))})"
        for index, member in enumerate(path)
    ]
    if len(spans) > NAMED:
        spans = [*spans[: NAMED // 2], "…", *spans[-NAMED // 2 :]]
    return " → ".join(spans)


def seconds_of(path: Sequence[Member], index: int) -> float:
    """Return for how long the end of the workflow waited for this work of the path."""
    start = path[index - 1].ended_at if index else path[index].queued_at
    return seconds_between(start, path[index].ended_at)


def seconds_between(start: datetime | None, end: datetime | None) -> float:
    """Return the seconds between two moments; 0 if one is not known."""
    return max(0.0, (end - start).total_seconds()) if start and end else 0.0


# A chain


def chain_section(work: Any, links: Links) -> list[Section]:
    """Return the steps of the chain that a work belongs to as a timeline and a table; none for no chain.

    The work's own step is marked. Pages with this section need ``graph.css`` in their Media.
    """
    if work.chain_id is None:
        return []
    steps = steps_from(work.chain_id, 0, STEPS + 1)
    shown = steps[:STEPS]
    if not shown:
        return []
    drawn = timeline(shown, clock.now(), work.id, lambda id: links.address(Work, "change", id))
    picture = render_to_string("admin/django_ayework/chain_timeline.html", {"timeline": drawn})
    table = Table(
        [_("step"), _("work"), _("type"), _("status"), _("waited"), _("ran")],
        [
            [
                str(step.chain_index + 1),
                links.work(step.id, pages.short(step.id)),
                step.type,
                lists.status(step.status),
                duration(seconds_between(step.queued_at, step.started_at))
                if step.started_at
                else pages.NOTHING,
                duration(seconds_between(step.started_at, step.ended_at)) if step.ended_at else pages.NOTHING,
            ]
            for step in shown
        ],
    )
    note = _("The first %(count)d steps.") % {"count": STEPS} if len(steps) > STEPS else ""
    return [Section(_("Chain"), [Fact("", picture, wide=True)], table, note)]


# The picture of a chain: each step as a bar, drawn to scale of time

#: Sizes in pixels: the picture, the texts to the left, one step, the scale above.
WIDTH, TEXTS, STEP, SCALE = 720, 230, 24, 24
#: The least width of a bar, and the characters of a type that fit to its left.
LEAST, FITS = 2.0, 26


def timeline(
    steps: Sequence[WorkRow], now: datetime, current: str, address_of: Callable[[str], str | None]
) -> dict[str, Any]:
    """Return the template variables of the picture of a chain's steps; there is at least one."""
    start = min(step.queued_at for step in steps)
    end = max([start, *(step.ended_at or now for step in steps)])
    whole = max((end - start).total_seconds(), 0.001)

    def place(at: datetime) -> float:
        share = min(max((at - start).total_seconds() / whole, 0.0), 1.0)
        return round(TEXTS + share * (WIDTH - TEXTS - 8), 1)

    return {
        "width": WIDTH,
        "height": SCALE + STEP * len(steps) + 4,
        "left": TEXTS,
        "title": _("Steps of the chain %(id)s") % {"id": steps[0].chain},
        "start": f"{localtime(start):%H:%M:%S}",
        "end": f"{localtime(end):%H:%M:%S} (+{duration((end - start).total_seconds())})",
        "bars": [
            {"y": SCALE + STEP * number, "address": address_of(step.id), "is_current": step.id == current}
            | bar(step, now, place)
            for number, step in enumerate(steps)
        ],
    }


def bar(step: WorkRow, now: datetime, place: Callable[[datetime], float]) -> dict[str, Any]:
    """Return one step of the picture: for how long it waited, and for how long it ran."""
    ended = step.ended_at or now
    started = min(step.started_at or ended, ended)
    waited_from, ran_from, ran_to = place(step.queued_at), place(started), place(ended)
    status = look_of(step.status)
    label = LABELS.get(step.status, step.status)
    return {
        "status": status,
        "shape": SHAPES[status],
        "text": fitting(f"{step.chain_index + 1}. {step.type}", FITS, keep_end=False),
        "title": f"{step.chain_index + 1}. {step.type}: {label}, {spans(step, now)}",
        "waited_from": waited_from,
        "waited": max(ran_from - waited_from, 0.0),
        "ran_from": ran_from,
        "ran": max(ran_to - ran_from, LEAST) if step.started_at else 0.0,
    }


def spans(step: WorkRow, now: datetime) -> str:
    """Return for how long a step waited, and ran."""
    waited = duration(seconds_between(step.queued_at, step.started_at or now))
    if step.started_at is None:
        return _("waited %(waited)s") % {"waited": waited}
    ran = duration(seconds_between(step.started_at, step.ended_at or now))
    return _("waited %(waited)s, ran %(ran)s") % {"waited": waited, "ran": ran}
