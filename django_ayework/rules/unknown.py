"""Works whose type no worker here knows: parked, re-offered, and given up after a grace."""

from __future__ import annotations

from datetime import datetime, timedelta

from django_ayework.rules.durations import require_aware

PREFIX = "no worker here knows this type, since "
#: Seconds until a parked work is offered again.
OFFER_AGAIN = timedelta(seconds=5)


def unknown_error(since: datetime) -> str:
    """Return what a parked work shows as its error, keeping since when nobody knows its type."""
    return f"{PREFIX}{since.isoformat()}"


def is_parking(error: str) -> bool:
    """Tell whether an error is only the note of a parked work.

    >>> is_parking("ValueError: no")
    False
    """
    return error.startswith(PREFIX)


def unknown_since(error: str, now: datetime) -> datetime:
    """Return since when a work is parked; now, if it was not parked before.

    >>> from datetime import UTC
    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> unknown_since(unknown_error(noon), noon + timedelta(hours=1)) == noon
    True
    """
    if is_parking(error):
        try:
            return require_aware(datetime.fromisoformat(error.removeprefix(PREFIX)), "since")
        except ValueError:
            pass
    return now
