"""Durations and moments as users write them."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from django_ayework.documentation import type_error, value_error

#: A duration: seconds as a number, or a timedelta.
Seconds: TypeAlias = float | timedelta
#: Moments between these exist in the calendars of all time zones, so they can be stored and shown.
EARLIEST = datetime(1, 1, 2, tzinfo=UTC)
LATEST = datetime(9999, 12, 31, tzinfo=UTC)


def seconds(value: Seconds, name: str) -> float:
    """Return a duration of 0 or more as a number of seconds; ``name`` is for the error message.

    >>> seconds(timedelta(minutes=1), "delay")
    60.0
    >>> seconds(-1, "delay")
    Traceback (most recent call last):
    ...
    ValueError: expected delay to be 0 seconds or more, got: -1.
    See https://...
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, timedelta)):
        raise type_error(
            "duration-not-usable",
            f"expected {name} to be seconds (a number) or a timedelta, "
            f"got: {value!r} ({type(value).__name__}).",
        )
    try:
        number = value.total_seconds() if isinstance(value, timedelta) else float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or number < 0:
        raise value_error("duration-not-usable", f"expected {name} to be 0 seconds or more, got: {value!r}.")
    return number


def positive_seconds(value: Seconds, name: str) -> float:
    """Return a duration of more than 0 as a number of seconds."""
    if not (number := seconds(value, name)):
        raise value_error(
            "duration-not-usable", f"expected {name} to be more than 0 seconds, got: {value!r}."
        )
    return number


def require_aware(moment: datetime, name: str) -> datetime:
    """Return the moment, within ``EARLIEST`` and ``LATEST``, if it is an aware datetime; else raise.

    ``name`` is for the message.

    >>> require_aware(datetime(2026, 1, 1), "run_at")
    Traceback (most recent call last):
    ...
    ValueError: expected run_at to be an aware datetime, got the naive datetime.datetime(2026, 1, 1, 0, 0); \
use django.utils.timezone.now() or make_aware().
    See https://...
    """
    if not isinstance(moment, datetime):
        raise type_error(
            "datetime-not-aware",
            f"expected {name} to be an aware datetime, got: {moment!r} ({type(moment).__name__}).",
        )
    if moment.utcoffset() is None:
        raise value_error(
            "datetime-not-aware",
            f"expected {name} to be an aware datetime, got the naive {moment!r}; "
            "use django.utils.timezone.now() or make_aware().",
        )
    return min(max(moment, EARLIEST), LATEST)


def later(moment: datetime, wait: float | timedelta) -> datetime:
    """Return the moment this many seconds later, capped at the last moment a database can hold.

    >>> from datetime import UTC
    >>> later(datetime(2026, 1, 1, tzinfo=UTC), 90).minute
    1
    """
    try:
        return moment + (wait if isinstance(wait, timedelta) else timedelta(seconds=wait))
    except OverflowError:
        return LATEST.replace(tzinfo=moment.tzinfo)
