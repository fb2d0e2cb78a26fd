"""The tables of the overview: its figures as cells, and what may be pressed beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Any
from urllib.parse import urlencode

from django.utils.html import format_html
from django.utils.safestring import mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_ayework.admin import charts, pages
from django_ayework.admin.controls import Target
from django_ayework.admin.pages import Links, badge, in_words
from django_ayework.define.requests import GATE_TYPE
from django_ayework.flow.overview import Overview
from django_ayework.models import DeadLetter, Schedule, WorkerProcess
from django_ayework.rules.figures import (
    Figures,
    Period,
    QueueFigures,
    ScheduleFigures,
    TypeFigures,
    WorkerFigures,
    bounded,
)
from django_ayework.rules.formatting import duration
from django_ayework.rules.problems import Problem, ProblemCode

#: Texts for screen readers when the most severe problem has changed.
ANNOUNCED = {
    ProblemCode.NO_WORKER: gettext_lazy("No worker is running."),
    ProblemCode.WORKERS_QUIET: gettext_lazy("All workers are quiet."),
    ProblemCode.QUEUE_NOT_SERVED: gettext_lazy("No worker serves a queue:"),
    ProblemCode.QUEUE_PAUSED: gettext_lazy("A queue is paused:"),
    ProblemCode.TYPE_NOT_TAKEN: gettext_lazy("No worker takes a type:"),
    ProblemCode.WORKER_TROUBLE: gettext_lazy("A worker reports a problem."),
    ProblemCode.TYPE_FLOODS: gettext_lazy("Too many works of one type:"),
    ProblemCode.BACKLOG_GROWS: gettext_lazy("All slots are busy, and many works wait."),
    ProblemCode.DEATHS_RISE: gettext_lazy("More works die than before."),
    ProblemCode.AT_LIMIT: gettext_lazy("A type is at its limit:"),
    ProblemCode.TYPE_PAUSED: gettext_lazy("A type is paused:"),
    ProblemCode.SCHEDULE_FAILS: gettext_lazy("A schedule fails:"),
    ProblemCode.WORKER_SILENT: gettext_lazy("A worker sends no heartbeat."),
    ProblemCode.ALL_WELL: gettext_lazy("All is well."),
}
SOME_ARE_DEAD = gettext_lazy("No problem was found, but works are dead.")
#: Problems about a queue or a type that pausing, or resuming, it in place mends.
MENDED_IN_PLACE = {ProblemCode.QUEUE_PAUSED, ProblemCode.TYPE_PAUSED, ProblemCode.TYPE_FLOODS}


@dataclass(frozen=True, slots=True)
class Control(Target):
    """The buttons of a queue or a type."""

    is_allowed: bool
    address: str

    @property
    def key(self) -> str:
        """A short text for ids of elements, which a name need not be fit for."""
        return f"{self.scope}-{blake2b(self.name.encode(), digest_size=6).hexdigest()}"

    def posts_to(self, act: str) -> str:
        """Return the address of an act."""
        given = {"scope": self.scope, "name": self.name, "act": act, "key": self.key}
        return f"{self.address}?{urlencode(given)}"

    @property
    def pause_url(self) -> str:
        """The address that pauses or resumes."""
        return self.posts_to("resume" if self.is_paused else "pause")

    @property
    def limit_url(self) -> str:
        """The address that sets limit and weight, with the values that are shown beside it."""
        shown = {f"shown_{field}": text for field, text in self.shown.items()}
        return f"{self.posts_to('limit')}&{urlencode(shown)}"

    @property
    def shown(self) -> dict[str, str]:
        """The values that the fields of the row have, as text; nothing for a declared one."""
        values = {field: getattr(self.row, field, None) for field in IN_PLACE}
        return {field: "" if value is None else str(value) for field, value in values.items()}


#: The columns of a control that a row of the overview has a field for.
IN_PLACE = ("max_running", "weight")
Controls = Callable[[str, str], Control]


@dataclass(frozen=True, slots=True)
class Cell:
    """A heading, what stands under it, whether it is a number, and whether a narrow table goes without it."""

    label: str
    value: str
    is_number: bool = False
    is_extra: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A row: its head, cells, and buttons. The limit in force stands where none is set by hand."""

    id: str
    head: str
    cells: Sequence[Cell]
    control: Control | None = None
    max_running: int = 0
    weight: int = 0


@dataclass(frozen=True, slots=True)
class Table:
    """A table under a title, with a note; ``heads`` is the heading of the first column."""

    title: str
    heads: str
    rows: Sequence[Row]
    note: str = ""

    @property
    def labels(self) -> list[Cell]:
        """The headings of the other columns."""
        return list(self.rows[0].cells) if self.rows else []

    @property
    def has_controls(self) -> bool:
        """Whether there is a column of buttons."""
        return any(row.control is not None for row in self.rows)


def board(seen: Overview, links: Links, control: Controls) -> dict[str, Any]:
    """Return what the page shows for one user; ``announced`` is read out when it has changed."""
    return {
        "is_well": seen.headline.code is ProblemCode.ALL_WELL and not is_of_the_dead(seen.headline),
        "announced": announced(seen.headline),
        "headline": statement(seen.headline, links, control),
        "others": [statement(problem, links, control) for problem in seen.problems[1:]],
        "tables": [
            types_table(seen, links, control),
            queues_table(seen, links, control),
            workers_table(seen, links),
            schedules_table(seen, links),
        ],
        "charts": [chart(_("The last hour"), seen.hour), chart(_("The last day"), seen.day)],
        "dead": bounded(seen.dead, seen.dead_capped),
        "dead_url": links.address(DeadLetter, "changelist"),
    }


# Problems


def announced(problem: Problem) -> str:
    """Return the text for screen readers, which does not change with the figures."""
    is_named = problem.kind in ("queue", "type", "schedule") and problem.code is not ProblemCode.DEATHS_RISE
    text = str(SOME_ARE_DEAD if is_of_the_dead(problem) else ANNOUNCED[problem.code])
    return f"{text} {problem.name}" if is_named else text


def is_of_the_dead(problem: Problem) -> bool:
    """Tell whether nothing is wrong but that works are dead, which has a remedy."""
    return problem.code is ProblemCode.ALL_WELL and bool(problem.remedy)


def statement(problem: Problem, links: Links, control: Controls) -> dict[str, Any]:
    """Return a problem as it is shown: its sentence, its remedy, where to look, and its button."""
    return {
        "text": in_words(problem.text).replace(GATE_TYPE, pages.type_name(GATE_TYPE)),
        "remedy": in_words(problem.remedy),
        "link": link_of(problem, links, control),
        "control": control(problem.kind, problem.name) if problem.code in MENDED_IN_PLACE else None,
    }


def link_of(problem: Problem, links: Links, control: Controls) -> str:
    """Return where to look, as HTML; nothing where there is no page."""
    address: str | None = None
    text = ""
    if problem.code is ProblemCode.DEATHS_RISE or is_of_the_dead(problem):
        address, text = links.address(DeadLetter, "changelist"), _("Dead letters")
    elif problem.kind in ("queue", "type"):
        address, text = f"#{control(problem.kind, problem.name).key}", _("Its row")
    elif problem.kind == "worker":
        address, text = links.address(WorkerProcess, "change", problem.name), _("The worker")
    elif problem.kind == "schedule":
        address, text = links.address(Schedule, "changelist"), _("Schedules")
    return pages.linked(address, text) if address else ""


# Queues and types


def types_table(seen: Overview, links: Links, control: Controls) -> Table:
    """Return the types, the largest backlog first."""
    found = [type_row(type, links, control("type", type.type)) for type in seen.types]
    return Table(_("Types"), _("type"), found, note_of(found, seen.more_types))


def type_row(type: TypeFigures, links: Links, control: Control) -> Row:
    """Return one type. Gates have no controls: they are not claimed."""
    url = links.works_where(type=type.type)
    head = format_html("{}{}", pages.linked_name(url, pages.type_name(type.type)), pause_mark(type))
    cells = [
        Cell(
            _("waiting"), waiting(type, links.works_where(type=type.type, status="pending"), type.share), True
        ),
        Cell(_("per minute"), both(_("%s in"), type.arriving, _("%s out"), type.rate), True),
        Cell(_("running"), running_of(type), True),
        Cell(_("later"), later(type), True),
        Cell(_("failures"), failures(type), True),
        Cell(_("running time"), times(type), True),
        Cell(_("last hour"), charts.spark(type.ended, type.failures) or pages.NOTHING, is_extra=True),
    ]
    controlled = None if type.type == GATE_TYPE else control
    return Row(control.key, head, cells, controlled, type.max_running, type.weight)


def queues_table(seen: Overview, links: Links, control: Controls) -> Table:
    """Return the queues, the largest backlog first."""
    found = [queue_row(queue, links, control("queue", queue.queue)) for queue in seen.queues]
    return Table(_("Queues"), _("queue"), found, note_of(found, seen.more_queues))


def queue_row(queue: QueueFigures, links: Links, control: Control) -> Row:
    """Return one queue."""
    url = links.works_where(queue=queue.queue)
    head = format_html("{}{}", pages.linked_name(url, queue.queue), pause_mark(queue))
    lapsed = ngettext("%s lapsed", "%s lapsed", queue.lapsed) % queue.lapsed if queue.lapsed else ""
    cells = [
        Cell(_("waiting"), waiting(queue, links.works_where(queue=queue.queue, status="pending")), True),
        Cell(_("per minute"), number(queue.rate), True),
        Cell(_("running"), with_small(queue.bounded("running"), lapsed), True),
        Cell(_("later"), later(queue), True),
        Cell(_("failures"), failures(queue), True),
        Cell(_("served"), served(queue)),
    ]
    return Row(control.key, head, cells, control)


def note_of(found: Sequence[Row], are_more: bool) -> str:
    """Return the note under a table that is empty or cut."""
    if not found:
        return _("Nothing is queued, and nothing ended during the last hour.")
    return _("The first %(count)d; there are more.") % {"count": len(found)} if are_more else ""


def pause_mark(figures: Figures) -> str:
    """Return that nothing is claimed, if so."""
    return format_html(" {}", badge("blocked", _("paused"))) if figures.paused else ""


def waiting(figures: Figures, url: str | None, share: float | None = None) -> str:
    """Return how many works wait, for how long the oldest does, and their part of the backlog."""
    if not figures.pending:
        oldest = _("due for %s") % duration(figures.waiting) if figures.waiting else ""
        return with_small("0", oldest)
    count = pages.linked(url, figures.bounded("pending"))
    oldest = _("oldest %s") % duration(round(figures.waiting))
    if share is None:
        return with_small(count, oldest)
    part = format_html("{} {}", charts.share_bar(share), f"{share:.0%}")
    return format_html("{}<small>{}</small><small>{}</small>", count, part, oldest)


def running_of(type: TypeFigures) -> str:
    """Return how many run, and the limit in force."""
    limit = _("at most %s") % f"{type.max_running:,}" if type.max_running else ""
    return with_small(type.bounded("running"), limit)


def later(figures: Figures) -> str:
    """Return how many works are scheduled, and how many wait for others."""
    parts = [
        (figures.scheduled, _("%s scheduled") % figures.bounded("scheduled")),
        (figures.blocked, _("%s blocked") % figures.bounded("blocked")),
    ]
    shown = [format_html("<small>{}</small>", text) for count, text in parts if count]
    return joined(shown) or pages.NOTHING


def failures(figures: Figures) -> str:
    """Return the failures of the last hour: works that died, and attempts that are repeated."""
    parts = []
    if figures.died:
        parts.append(badge("dead", _("%s died") % f"{figures.died:,}"))
    if figures.failed:
        parts.append(format_html("<small>{}</small>", _("%s failed") % f"{figures.failed:,}"))
    return joined(parts) or pages.NOTHING


def times(type: TypeFigures) -> str:
    """Return how long half of the last successes ran at most, and nearly all of them."""
    if type.p50 is None or type.p95 is None:
        return pages.NOTHING
    return both(_("50 %%: %s"), duration(type.p50), _("95 %%: %s"), duration(type.p95))


def served(queue: QueueFigures) -> str:
    """Return whether a live worker serves a queue."""
    return badge("alive", _("yes")) if queue.served else badge("silent", _("by nobody"))


def number(rate: float) -> str:
    """Return a rate as a whole number, or with a decimal where that says more.

    >>> number(0.0), number(0.4), number(1234.5)
    ('0', '0.4', '1,234')
    """
    return f"{rate:.1f}" if 0 < rate < 10 and rate != int(rate) else f"{rate:,.0f}"


def both(first: str, one: float | str, second: str, other: float | str) -> str:
    """Return two figures in lines of their own."""
    shown = (value if isinstance(value, str) else number(value) for value in (one, other))
    return format_html(
        "<small>{}</small><small>{}</small>", *(t % v for t, v in zip((first, second), shown, strict=True))
    )


def with_small(value: str, more: str) -> str:
    """Return a value, and something smaller below it if there is something."""
    return format_html("{}<small>{}</small>", value, more) if more else value


def joined(parts: Sequence[str]) -> str:
    """Return pieces of HTML one after the other."""
    return mark_safe("".join(parts))  # noqa: S308  # each was made by format_html


# Workers and schedules


def workers_table(seen: Overview, links: Links) -> Table:
    """Return the workers, those that are alive first."""
    found = [worker_row(worker, links, seen.at) for worker in seen.workers]
    return Table(_("Workers"), _("worker"), found, "" if found else _("No worker is running."))


def worker_row(worker: WorkerFigures, links: Links, now: datetime) -> Row:
    """Return one worker."""
    address = f"{worker.host}:{worker.pid}"
    url = links.address(WorkerProcess, "change", worker.id)
    head = pages.linked_name(url, worker.name or address)
    cells = [
        Cell(_("state"), worker_state(worker)),
        Cell(_("running"), f"{worker.running} / {worker.concurrency}", True),
        Cell(_("queues"), worker.queues.replace(",", ", ") or _("all")),
        Cell(_("host"), address),
        Cell(_("last seen"), pages.moment(worker.seen_at, now)),
        Cell(_("version"), worker.version or pages.NOTHING),
    ]
    return Row(f"worker-{worker.id}", head, cells)


def worker_state(worker: WorkerFigures) -> str:
    """Return whether a worker is alive, quiet, or in trouble."""
    if worker.stale:
        return badge("silent", _("silent"))
    if worker.trouble:
        return with_small(badge("dead", _("in trouble")), worker.trouble)
    return badge("blocked", _("quiet")) if worker.quiet else badge("alive", _("alive"))


def schedules_table(seen: Overview, links: Links) -> Table:
    """Return the schedules that are due next."""
    found = [schedule_row(schedule, links, seen.at) for schedule in seen.schedules]
    return Table(_("Next schedules"), _("schedule"), found, "" if found else _("No schedule is due."))


def schedule_row(schedule: ScheduleFigures, links: Links, now: datetime) -> Row:
    """Return one schedule."""
    url = links.address(Schedule, "changelist")
    state = badge("silent", _("failing")) if schedule.failures else badge("alive", _("active"))
    cells = [
        Cell(_("due"), pages.moment(schedule.due_at, now)),
        Cell(_("runs"), schedule.runs),
        Cell(_("state"), with_small(state, pages.first_line(schedule.error, 140))),
    ]
    head = pages.linked_name(url, schedule.name)
    return Row(f"schedule-{schedule.name}", head, cells)


# Charts


def chart(title: str, periods: Sequence[Period]) -> dict[str, Any]:
    """Return a chart of periods under a title, with its figures in words and the times along it."""
    return {
        "title": title,
        "drawing": charts.chart(periods),
        "summary": charts.summary(periods),
        "times": charts.axis(periods),
    }
