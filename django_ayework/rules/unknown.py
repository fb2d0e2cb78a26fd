"""Works whose type no worker here knows: parked, re-offered, and given up after a grace."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from django_ayework.errors import did_you_mean
from django_ayework.rules.durations import require_aware

PREFIX = "no worker here knows this type, since "
#: Seconds until a parked work is offered again.
OFFER_AGAIN = timedelta(seconds=5)


def unknown_error(since: datetime, before: str = "") -> str:
    """Return what a parked work shows as its error, keeping since when nobody knows its type.

    ``before`` is the error of its last attempt, which stays below that for whoever takes the work.
    """
    return f"{PREFIX}{since.isoformat()}" + (f"\n{before}" if before else "")


def if_renamed(type: str, known: Iterable[str]) -> str:
    """Return what to do when an unknown type has another name now.

    >>> print(if_renamed("shop.send_recipt", ["shop.send_receipt"]))
    Did you mean 'shop.send_receipt'? If its function was renamed or moved,
    keep the stored name: @work(name="shop.send_recipt").
    """
    advice = f'If its function was renamed or moved, keep the stored name: @work(name="{type}").'
    return f"{did_you_mean(type, known)} {advice}".strip()


def is_parking(error: str) -> bool:
    """Tell whether an error is the note of a parked work.

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
            moment = error.removeprefix(PREFIX).partition("\n")[0]
            return require_aware(datetime.fromisoformat(moment), "since")
        except ValueError:
            pass
    return now


def error_before(error: str) -> str:
    """Return the error that a work had before it was parked; the error itself of one that was not.

    >>> from datetime import UTC
    >>> error_before(unknown_error(datetime(2026, 1, 1, tzinfo=UTC), "ValueError: no"))
    'ValueError: no'
    """
    return error.partition("\n")[2] if is_parking(error) else error


def parked_again(error: str, now: datetime) -> str:
    """Return what a work shows that is parked, perhaps not for the first time."""
    return unknown_error(unknown_since(error, now), error_before(error))
