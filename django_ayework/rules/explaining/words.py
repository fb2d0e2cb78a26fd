"""Moments, durations, errors and lists as they stand in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

LONGEST_ERROR = 200


def duration(seconds: float) -> str:
    """Return a duration by its two largest units.

    >>> duration(0.25), duration(1.5), duration(90), duration(86400), duration(3725)
    ('250 ms', '1.5 s', '1 min 30 s', '1 d', '1 h 2 min')
    """
    if 0 < seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    whole = timedelta(seconds=round(seconds))
    hours, rest = divmod(whole.seconds, 3600)
    parts = ((whole.days, "d"), (hours, "h"), (rest // 60, "min"), (rest % 60, "s"))
    return " ".join([f"{number} {unit}" for number, unit in parts if number][:2])


def moment(at: datetime, now: datetime) -> str:
    """Return a moment in the zone of ``now``, and how far away it is.

    >>> from datetime import UTC
    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> moment(noon + timedelta(minutes=5), noon), moment(noon - timedelta(hours=1), noon)
    ('2026-01-01 12:05:00 UTC (in 5 min)', '2026-01-01 11:00:00 UTC (1 h ago)')
    """
    away = round((at - now).total_seconds())
    distance = f"in {duration(away)}" if away > 0 else f"{duration(-away)} ago" if away else "now"
    return f"{at.astimezone(now.tzinfo):%Y-%m-%d %H:%M:%S %Z} ({distance})"


def ended(at: datetime | None, now: datetime) -> str:
    """Return when something ended, for the end of a sentence; nothing when that is not known."""
    return "" if at is None else f" at {moment(at, now)}"


def error_line(error: str) -> str:
    """Return the first line of an error, shortened.

    >>> error_line("ValueError: no\\nmore"), error_line("")
    ('ValueError: no', 'no error was kept')
    """
    lines = error.strip().splitlines()
    if not lines:
        return "no error was kept"
    return lines[0] if len(lines[0]) <= LONGEST_ERROR else lines[0][: LONGEST_ERROR - 1] + "…"


def sentence(text: str) -> str:
    """Return a text that ends as a sentence does.

    >>> sentence("It failed: no luck"), sentence("Why?")
    ('It failed: no luck.', 'Why?')
    """
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."


def counted(number: int, noun: str) -> str:
    """Return a number of things.

    >>> counted(1, "work"), counted(1200, "work")
    ('1 work', '1200 works')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listed(items: Sequence[str], total: int) -> str:
    """Return the first items of ``total``, and how many more there are.

    >>> listed(["a", "b"], 2), listed(["a", "b"], 7)
    ('a, b', 'a, b and 5 more')
    """
    more = total - len(items)
    return ", ".join(items) + (f" and {more} more" if more > 0 else "")
