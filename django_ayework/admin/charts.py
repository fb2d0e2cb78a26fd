"""Drawings as SVG, each with its figures as a text: charts of what ended and failed, timelines of works."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.template.loader import render_to_string
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.timezone import localtime
from django.utils.translation import gettext as _

from django_ayework.admin import pages
from django_ayework.models import Attempt, Work
from django_ayework.models.work import OUTCOME_LABELS, STATUS_LABELS
from django_ayework.rules.figures import Period
from django_ayework.rules.formatting import duration
from django_ayework.rules.states import Outcome, Status

#: Width of one bar with its gap, height above and below the line, in units of the drawing.
STEP, ABOVE, BELOW = 2, 18, 6
WIDE_STEP, WIDE_ABOVE, WIDE_BELOW = 10, 90, 30


def spark(ended: Sequence[int], failures: Sequence[int]) -> str:
    """Return a small chart of the minutes of the last hour; nothing without any attempt."""
    if not any(ended) and not any(failures):
        return ""
    label = _(
        "%(ended)s ended and %(failures)s failures in the last hour, at most %(most)s ended in a minute"
    )
    label %= {"ended": f"{sum(ended):,}", "failures": f"{sum(failures):,}", "most": f"{max(ended):,}"}
    return drawing("ayework-spark", label, ended, failures, (STEP, ABOVE, BELOW))


def chart(periods: Sequence[Period]) -> str:
    """Return a chart of periods."""
    ended = [period.succeeded for period in periods]
    failures = [period.failed + period.died for period in periods]
    return drawing(
        "ayework-chart-bars", summary(periods), ended, failures, (WIDE_STEP, WIDE_ABOVE, WIDE_BELOW)
    )


def summary(periods: Sequence[Period]) -> str:
    """Return the figures of periods in words."""
    most = max(periods, key=lambda period: period.succeeded, default=None)
    figures = {
        "succeeded": f"{sum(period.succeeded for period in periods):,}",
        "failed": f"{sum(period.failed for period in periods):,}",
        "died": f"{sum(period.died for period in periods):,}",
    }
    text = _("%(succeeded)s succeeded, %(failed)s attempts failed, %(died)s died") % figures
    if most is None or not most.succeeded:
        return text
    peak = {"most": f"{most.succeeded:,}", "at": date_format(localtime(most.start), "H:i"), "text": text}
    return _("%(text)s; the peak was %(most)s at %(at)s") % peak


def axis(periods: Sequence[Period]) -> list[str]:
    """Return the times of the first period, the one in the middle, and the last."""
    chosen = (periods[0], periods[len(periods) // 2], periods[-1])
    return [date_format(localtime(period.start), "H:i") for period in chosen]


def drawing(
    kind: str, label: str, up: Sequence[int], down: Sequence[int], sizes: tuple[int, int, int]
) -> str:
    """Return bars above and below a line, of one scale."""
    step, above, below = sizes
    least = below / 5
    scale = 1 / max(max(up, default=0) / above, max(down, default=0) / below, 1 / above)
    return format_html(
        '<svg class="{}" role="img" aria-label="{}" viewBox="0 0 {} {}" preserveAspectRatio="none">'
        '<path class="ayework-ended" d="{}" stroke-width="{}"/>'
        '<path class="ayework-failures" d="{}" stroke-width="{}"/>'
        '<path class="ayework-line" d="M0 {}H{}" stroke-width="1"/></svg>',
        kind,
        label,
        step * len(up),
        above + below,
        bars(up, step, above, -scale, least),
        step * 0.75,
        bars(down, step, above, scale, least),
        step * 0.75,
        above,
        step * len(up),
    )


def bars(values: Sequence[int], step: int, line: int, scale: float, least: float) -> str:
    """Return a path with one bar from the line for each value above 0, of a height that can be seen.

    >>> bars([0, 1, 20], 2, 18, -0.9, 1.2)
    'M3 18v-1.2M5 18v-18.0'
    """
    smallest = math.copysign(least, scale)
    return "".join(
        f"M{number * step + step // 2} {line}v{max(value * scale, smallest, key=abs):.1f}"
        for number, value in enumerate(values)
        if value
    )


def share_bar(share: float) -> str:
    """Return a bar for a share from 0 to 1; the figure stands beside it as text."""
    return format_html(
        '<svg class="ayework-share" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="ayework-share-all" width="100" height="6"/>'
        '<rect class="ayework-share-part" width="{}" height="6"/></svg>',
        f"{min(1.0, max(0.0, share)) * 100:.1f}",
    )


# The timeline of a work, drawn to scale: how long it waited, each attempt, the waits between them

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


@dataclass(frozen=True, slots=True)
class Drawn:
    """A span as a rectangle."""

    kind: str
    text: str
    x: str
    width: str


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


def drawn(spans: Sequence[Span]) -> list[Drawn]:
    """Return spans as rectangles to scale; one that would not be seen has the least width."""
    start = min(span.start for span in spans)
    whole = max(max(span.end for span in spans) - start, timedelta(microseconds=1))
    found = []
    for span in spans:
        x = (span.start - start) / whole * (WIDTH - LEAST)
        width = max((span.end - span.start) / whole * (WIDTH - LEAST), LEAST)
        found.append(Drawn(span.kind, span.text, f"{x:.1f}", f"{width:.1f}"))
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
