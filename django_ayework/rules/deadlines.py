"""The wall-clock bound on a work's whole life, judged before a start and before a retry only."""

from __future__ import annotations

from datetime import datetime

from django_ayework.rules.durations import later


def resolve_deadline(now: datetime, expires: float | None, deadline: datetime | None) -> datetime | None:
    """Return when the work expires: an explicit ``deadline`` wins over ``expires`` seconds from now."""
    if deadline is not None:
        return deadline
    return None if expires is None else later(now, expires)


def has_expired(deadline: datetime | None, at: datetime) -> bool:
    """Tell whether a start at this moment would be too late; at the deadline itself it is not.

    >>> from datetime import UTC
    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> has_expired(noon, noon), has_expired(None, noon), has_expired(noon, noon.replace(second=1))
    (False, False, True)
    """
    return deadline is not None and at > deadline
