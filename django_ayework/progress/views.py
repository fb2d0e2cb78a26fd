"""The progress page for people who know nothing of works: how far a work or a group is, and the views.

Who has the token may see them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.template.response import TemplateResponse
from django.utils.cache import patch_cache_control
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.http import require_safe

from django_ayework.fragments import fragment
from django_ayework.models import Group, Work
from django_ayework.progress import Watched, part_url, watched_by
from django_ayework.rules.states import Status
from django_ayework.store.database import clock, rows

COLUMNS = ("status", "progress", "attempt", "run_at", "queued_at", "started_at", "ended_at")
#: The words for each status of a work.
WORDS: dict[str, Any] = {
    Status.BLOCKED: gettext_lazy("Waiting for other work"),
    Status.SCHEDULED: gettext_lazy("Scheduled"),
    Status.PENDING: gettext_lazy("Waiting to start"),
    Status.RUNNING: gettext_lazy("In progress"),
    Status.SUCCESS: gettext_lazy("Done"),
    Status.DEAD: gettext_lazy("Failed"),
    Status.CANCELLED: gettext_lazy("Cancelled"),
}


@dataclass(frozen=True, slots=True)
class ProgressFigures:
    """How far something is. ``state`` is one of ``waiting, running, success, failed, cancelled``."""

    state: str
    words: str
    done: float = 0
    total: float | None = None
    note: str = ""
    left: str = ""  # how long the rest takes, in words
    starts_at: datetime | None = None

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will change by itself."""
        return self.state in ("success", "failed", "cancelled")

    @property
    def percent(self) -> int | None:
        """The part that is done, from 0 to 100."""
        return 100 if self.state == "success" else percent(self.done, self.total)


def figures_of(watched: Watched) -> ProgressFigures | None:
    """Read how far a work or a group is; None when there is no such work any more."""
    work = rows(Work).filter(id=watched.id).values(*COLUMNS).first()
    if not watched.group:
        return None if work is None else of_work(work, clock.now())
    group = rows(Group).filter(id=watched.id).values("id", "open", "total", "dead").first()
    if group is not None:
        return of_group(group, work, clock.now())
    return None if work is None else of_work(work, clock.now())  # the only one of its group


def of_work(work: Mapping[str, Any], now: datetime) -> ProgressFigures:
    """Return how far a work is, by what its handler has reported."""
    status = work["status"]
    done, total, note = reported(work["progress"])
    started_at = work["started_at"] if status == Status.RUNNING else None
    is_again = status == Status.SCHEDULED and work["attempt"]
    waits = status in (Status.SCHEDULED, Status.PENDING, Status.BLOCKED)
    return ProgressFigures(
        state=state_of(status),
        words=_("Will be tried again") if is_again else str(WORDS.get(status, status)),
        done=0 if waits else done,
        total=total,
        note="" if waits else note,
        left=words_left(done, total, started_at, now),
        starts_at=work["run_at"] if status == Status.SCHEDULED else None,
    )


def of_group(group: Mapping[str, Any], root: Mapping[str, Any] | None, now: datetime) -> ProgressFigures:
    """Return how far a group is, by how many of its works have ended."""
    ended = group["total"] - group["open"]
    if not group["open"]:
        state, words = end_of_group(group, root)
        return ProgressFigures(state, words, ended, group["total"])
    started_at = root["started_at"] if root is not None else None
    has_begun = ended > 0 or root is None or started_at is not None
    left = words_left(ended, group["total"], started_at, now)
    state, status = ("running", Status.RUNNING) if has_begun else ("waiting", Status.PENDING)
    failed = ngettext("%(count)d failed", "%(count)d failed", group["dead"]) % {"count": group["dead"]}
    note = failed if group["dead"] else ""
    return ProgressFigures(state, str(WORDS[status]), ended, group["total"], note, left)


def end_of_group(group: Mapping[str, Any], root: Mapping[str, Any] | None) -> tuple[str, str]:
    """Return how a group has ended, in words too: with success only if all of its works have succeeded."""
    if group["dead"]:
        return "failed", _("Finished, with failures")
    if root is not None and root["status"] == Status.CANCELLED:
        return "cancelled", str(WORDS[Status.CANCELLED])
    if rows(Work).filter(group_id=group["id"], status=Status.CANCELLED).exists():
        return "cancelled", _("Finished, partly cancelled")
    return "success", _("Done")


def state_of(status: str) -> str:
    """Return the state for a status of a work."""
    if status in (Status.BLOCKED, Status.SCHEDULED, Status.PENDING):
        return "waiting"
    return "failed" if status == Status.DEAD else str(status)


def words_left(done: float, total: float | None, started_at: datetime | None, now: datetime) -> str:
    """Return how long the rest takes, in words; empty when that is not known."""
    elapsed = 0.0 if started_at is None else (now - started_at).total_seconds()
    seconds = seconds_left(done, total, elapsed)
    if seconds is None:
        return ""
    number, unit = rounded(seconds)
    texts = {
        "seconds": ngettext("about %(count)d second left", "about %(count)d seconds left", number),
        "minutes": ngettext("about %(count)d minute left", "about %(count)d minutes left", number),
        "hours": ngettext("about %(count)d hour left", "about %(count)d hours left", number),
    }
    return texts[unit] % {"count": number}


def reported(text: str | None) -> tuple[float, float | None, str]:
    """Return what a handler has reported: done, total, note. What cannot be read counts as nothing."""
    try:
        stored = json.loads(text or "{}")
        total = stored.get("total")
        return (
            float(stored.get("done") or 0),
            None if total is None else float(total),
            stored.get("note") or "",
        )
    except (ValueError, TypeError, AttributeError):
        return 0.0, None, ""


# Estimates of the time that remains, rounded for people

#: Below so many seconds a guess is not worth saying: too little has happened.
SOONEST_GUESS = 1.0


def seconds_left(done: float, total: float | None, elapsed: float) -> float | None:
    """Return how many seconds the rest takes at the pace so far; None when that cannot be said yet.

    >>> seconds_left(done=25, total=100, elapsed=10)
    30.0
    >>> seconds_left(done=0, total=100, elapsed=10), seconds_left(done=5, total=None, elapsed=10)
    (None, None)
    """
    if not total or done <= 0 or elapsed < SOONEST_GUESS:
        return None
    return max(0.0, (total - done) * elapsed / done)


def rounded(seconds: float) -> tuple[int, str]:
    """Return a guess in a unit that promises no more than it knows: seconds in tens, then minutes, hours.

    >>> rounded(3), rounded(44), rounded(200), rounded(7200)
    ((10, 'seconds'), (50, 'seconds'), (3, 'minutes'), (2, 'hours'))
    """
    if seconds <= 60:
        return max(10, -int(-seconds // 10) * 10), "seconds"
    if seconds <= 5_400:
        return round(seconds / 60), "minutes"
    return round(seconds / 3_600), "hours"


def percent(done: float, total: float | None) -> int | None:
    """Return the part that is done, from 0 to 100; None without a total.

    >>> percent(1, 3), percent(7, 5), percent(2, None)
    (33, 100, None)
    """
    return None if not total else int(min(max(100 * done / total, 0), 100))


# The page, and the part of it that refreshes itself

PAGE = "django_ayework/progress/page.html"
PART = "django_ayework/progress/part.html"
NOT_FOUND = "django_ayework/progress/not_found.html"


@require_safe
def page(request: HttpRequest, token: str) -> HttpResponseBase:
    """Show the progress page of a token."""
    context = context_of(token)
    if context is None:
        return not_found(request)
    return unlisted(TemplateResponse(request, PAGE, context))


@require_safe
def part(request: HttpRequest, token: str) -> HttpResponseBase:
    """Return the part of the page that changes."""
    context = context_of(token)
    return not_found(request) if context is None else unlisted(fragment(request, PART, context))


def context_of(token: str) -> dict[str, Any] | None:
    """Return what the templates show; None for a token of no use, and for a work that is gone."""
    watched = watched_by(token)
    figures = None if watched is None else figures_of(watched)
    if watched is None or figures is None:
        return None
    return {"watched": watched, "figures": figures, "live_url": part_url(token)}


def not_found(request: HttpRequest) -> HttpResponse:
    """Return the same answer for every token of no use, so nobody can find out which works exist."""
    response = TemplateResponse(request, NOT_FOUND, {}, status=404)
    unlisted(response)
    return response


def unlisted(response: HttpResponseBase) -> HttpResponseBase:
    """Keep the address, which holds the token, from caches, search engines and other sites."""
    response["X-Robots-Tag"] = "noindex, nofollow"
    response["Referrer-Policy"] = "same-origin"
    patch_cache_control(response, private=True, no_cache=True)
    return response
