"""Texts that people read: moments, durations, shortened ids, policies."""

from __future__ import annotations

from datetime import datetime

from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.text import Truncator
from django.utils.timezone import localtime
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_ayework.rules.backoff import RetryPolicy
from django_ayework.rules.conditions import Condition, Count
from django_ayework.rules.explaining.words import duration as duration

NOTHING = "–"


def short(id: str) -> str:
    """Return an id short enough for a column; generated ids differ in their last figures.

    >>> short("0199f3a1-72c4-7a11-9a3e-2f6d2c90b7e1"), short("order-17")
    ('…2c90b7e1', 'order-17')
    """
    return id if len(id) <= 12 else f"…{id[-8:]}"


def first_line(text: str, length: int) -> str:
    """Return the first line of an error, shortened."""
    lines = text.strip().splitlines()
    return Truncator(lines[0]).chars(length) if lines else ""


def full_moment(at: datetime | None) -> str:
    """Return a moment to the second, in the reader's time zone."""
    return NOTHING if at is None else date_format(localtime(at), "j M Y H:i:s T")


def moment(at: datetime | None, now: datetime) -> str:
    """Return a moment for a column: the time if it is of today, else the day too."""
    if at is None:
        return NOTHING
    here = localtime(at)
    is_today = here.date() == localtime(now).date()
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        here.isoformat(),
        full_moment(at),
        date_format(here, "H:i:s" if is_today else "j M H:i"),
    )


def optional_duration(seconds: float | None) -> str:
    """Return a duration, or a dash for none."""
    return NOTHING if seconds is None else duration(seconds)


def policy(retry: RetryPolicy) -> str:
    """Return a retry policy as a sentence."""
    attempts = ngettext("%(count)d attempt", "%(count)d attempts", retry.attempts) % {"count": retry.attempts}
    if retry.attempts == 1:
        return attempts
    waits = _(
        "%(attempts)s; the first wait is %(base)s, each next one %(factor)g times as long, at most %(max)s"
    )
    said = waits % {
        "attempts": attempts,
        "base": duration(retry.base),
        "factor": retry.factor,
        "max": duration(retry.max),
    }
    if not retry.jitter:
        return said
    return _("%(policy)s, less up to %(share)d %% at random") % {"policy": said, "share": retry.jitter * 100}


def condition(condition: Condition) -> str:
    """Return what a gate waits for as words."""
    if isinstance(condition, Count):
        many = _("%(count)d succeeded") if condition.of == "success" else _("%(count)d ended")
        return many % {"count": condition.n}
    return _("all succeeded") if condition == "all-success" else _("all ended")
