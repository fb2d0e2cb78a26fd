"""The timeline of a work, drawn to scale: how long it waited, each attempt, the waits between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.template.loader import render_to_string
from django.utils.translation import gettext as _

from django_ayework.admin import pages
from django_ayework.models import Attempt, Work
from django_ayework.models.work import OUTCOME_LABELS, STATUS_LABELS
from django_ayework.rules.formatting import duration
from django_ayework.rules.states import Outcome, Status

#: The width of the drawing, and the least width of a span, in units of the drawing.
WIDTH, LEAST = 720.0, 3.0


@dataclass(frozen=True, slots=True)
class Span:
    """A part of the life of a work: its kind, its label, its start and its end."""

    kind: str
    label: str
    start: datetime
    end: datetime

    @property
    def text(self) -> str:
        """The label and the duration."""
        return f"{self.label}: {duration(max((self.end - self.start).total_seconds(), 0))}"


def spans_of(work: Work, attempts: Sequence[Attempt], now: datetime) -> list[Span]:
    """Return the spans of a work from its queueing to its end, or to now; attempts come in their order."""
    spans: list[Span] = []
    before: Attempt | None = None
    for attempt in attempts:
        start = attempt.started_at or attempt.ended_at
        spans += waited(before, attempt.number, before.ended_at if before else work.queued_at, start)
        spans.append(Span(kind_of(attempt.outcome), attempt_label(attempt), start, attempt.ended_at))
        before = attempt
    return [*spans, *last_spans(work, before, now)]


def waited(before: Attempt | None, number: int, at: datetime, until: datetime) -> list[Span]:
    """Return the wait for the attempt of this number: for its moment, and for a worker.

    Attempts are counted anew once a work was retried by hand. A deferral gives its number back.
    """
    if until <= at:
        return []
    if before is None:
        label = _("waited")
    elif number <= before.number and before.outcome != Outcome.DEFERRED:
        label = _("waited for a retry by hand")
    else:
        label = _("waited for a retry")
    return [Span("waited", label, at, until)]


def last_spans(work: Work, before: Attempt | None, now: datetime) -> list[Span]:
    """Return what follows the attempts that did not succeed: a success, an attempt that runs, or a wait."""
    at = before.ended_at if before else work.queued_at
    status, start = work.status, work.started_at
    if start is not None and (status == Status.RUNNING or (status == Status.SUCCESS and start >= at)):
        start = max(start, at)
        end = max(work.ended_at or now, start)
        return [
            *waited(before, work.attempt, at, start),
            Span(status, str(STATUS_LABELS[status]), start, end),
        ]
    ended_by_attempt = status == Status.DEAD and before is not None
    return [] if ended_by_attempt else waited(before, work.attempt + 1, at, work.ended_at or now)


def kind_of(outcome: str) -> str:
    """Return the look of an attempt."""
    return outcome if outcome in set(Outcome) else "failed"


def attempt_label(attempt: Attempt) -> str:
    """Return which attempt it was, and how it ended."""
    outcome = OUTCOME_LABELS.get(attempt.outcome, attempt.outcome)
    return _("attempt %(number)d %(outcome)s") % {"number": attempt.number, "outcome": outcome}


def drawn(spans: Sequence[Span]) -> list[dict[str, str]]:
    """Return spans as rectangles to scale; one that would not be seen has the least width."""
    start = min(span.start for span in spans)
    whole = max(max(span.end for span in spans) - start, timedelta(microseconds=1))
    found = []
    for span in spans:
        x = (span.start - start) / whole * (WIDTH - LEAST)
        width = max((span.end - span.start) / whole * (WIDTH - LEAST), LEAST)
        found.append({"kind": span.kind, "text": span.text, "x": f"{x:.1f}", "width": f"{width:.1f}"})
    return found


def timeline(work: Work, attempts: Sequence[Attempt], now: datetime) -> str:
    """Return the timeline as HTML: a drawing, and the same in words. Nothing for a work that just came."""
    spans = spans_of(work, attempts, now)
    if not spans:
        return ""
    context = {
        "spans": drawn(spans),
        "summary": "; ".join(span.text for span in spans),
        "start": pages.full_moment(spans[0].start),
        "end": pages.full_moment(max(span.end for span in spans)) if work.ended_at else _("now"),
        "width": int(WIDTH),
    }
    return render_to_string("admin/django_ayework/work_timeline.html", context)
