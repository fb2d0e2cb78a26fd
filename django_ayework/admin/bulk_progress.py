"""How far a bulk action is: figures, rate, estimate and refusals, for its page and for the list."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.utils.formats import number_format
from django.utils.html import format_html
from django.utils.translation import gettext as _

from django_ayework.admin import pages
from django_ayework.admin.pages import Fact, Links
from django_ayework.flow import bulk
from django_ayework.models import BulkAction
from django_ayework.rules.formatting import duration

#: The colours of the statuses.
BADGES = {"running": "running", "stopped": "stopped", "done": "success", "failed": "dead"}
#: Seconds after which a rate is worth a figure.
MEASURED_AFTER = 2.0
#: Percent between two announcements.
ANNOUNCED = 10


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a bulk action is, in texts. ``announced`` changes rarely enough to be read out."""

    badge: str
    bar: str
    acted_text: str
    announced: str
    facts: Sequence[Fact]
    error: str
    refusals: Sequence[tuple[str, str]]
    more_refusals: int
    is_over: bool


def progress_of(row: BulkAction, now: datetime, links: Links | None = None) -> Progress:
    """Return how far a bulk action is at a moment."""
    status = pages.choice_label(row, "status")
    acted, total = row.done + row.refused, expected_of(row)
    kept = [(str(id), str(sentence)) for id, sentence in json.loads(row.report)]
    refusals = [(id, sentence) for id, sentence in kept if id]
    share = _("%(share)d %% done") % {"share": percent(acted, total)} if total else ""
    return Progress(
        badge=pages.badge(BADGES.get(row.status, "unknown"), status),
        bar=bar(acted, total, row.status == "done"),
        acted_text=acted_of(acted, row, total),
        announced=", ".join(filter(None, (status, share))),
        facts=facts(row, acted, total, now),
        error=next((pages.printable(sentence) for id, sentence in kept if not id), ""),
        refusals=[(links.work(id) if links else id, pages.printable(text)) for id, text in refusals],
        more_refusals=max(0, row.refused - len(refusals)),
        is_over=row.status != "running",
    )


def expected_of(row: BulkAction) -> int | None:
    """Return how many works were expected; None when there are more than were counted, or nobody counted."""
    return None if bulk.is_capped(row) or row.expected == bulk.UNKNOWN else row.expected


def percent(acted: int, total: int) -> int:
    """Return the share that is done, in steps that are announced."""
    return min(100, 100 * acted // total) // ANNOUNCED * ANNOUNCED


def bar(acted: int, total: int | None, is_done: bool) -> str:
    """Return the bar as HTML; one without a value while the total is not known."""
    label = _("Works acted on")
    if is_done:
        acted = total = max(1, acted)
    if not total:
        return format_html('<progress class="ayework-bar" aria-label="{}"></progress>', label)
    text = '<progress class="ayework-bar" value="{}" max="{}" aria-label="{}"></progress>'
    return format_html(text, min(acted, total), total, label)


def acted_of(acted: int, row: BulkAction, total: int | None) -> str:
    """Return how many works were acted on, of how many."""
    if total is None or row.status == "done":
        return figure(acted)
    return _("%(acted)s of %(total)s") % {"acted": figure(acted), "total": figure(total)}


def figure(number: int) -> str:
    """Return a number with groups of figures."""
    return number_format(number, force_grouping=True)


def facts(row: BulkAction, acted: int, total: int | None, now: datetime) -> list[Fact]:
    """Return the figures of a bulk action."""
    took = max(0.0, ((row.ended_at or now) - row.created_at).total_seconds())
    rate = acted * 60 / took if took >= MEASURED_AFTER else None
    pace = _("as fast as workers can") if row.per_minute is None else figure(row.per_minute)
    left = None if total is None else max(0, total - acted)
    return [
        Fact(_("done"), figure(row.done)),
        Fact(_("refused"), figure(row.refused)),
        *([] if left is None or row.status == "done" else [Fact(_("left"), figure(left))]),
        Fact(_("per minute, as set"), pace),
        Fact(_("per minute, as measured"), pages.NOTHING if rate is None else figure(round(rate))),
        *([Fact(_("ends in about"), estimate(row, left, rate))] if row.status == "running" else []),
        Fact(_("created"), f"{pages.full_moment(row.created_at)} {row.created_by}".strip()),
        Fact(_("works up to"), pages.full_moment(row.until)),
        *([Fact(_("ended"), pages.full_moment(row.ended_at))] if row.ended_at else []),
    ]


def estimate(row: BulkAction, left: int | None, rate: float | None) -> str:
    """Return how long the rest takes at its pace, or else at the measured rate."""
    pace = row.per_minute or rate
    return pages.NOTHING if left is None or not pace else duration(round(left * 60 / pace))
