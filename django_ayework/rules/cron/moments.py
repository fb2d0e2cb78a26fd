"""From wall-clock time to moments: the two nights a year on which a clock does not tell them one by one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Literal, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django_ayework.errors import CronError
from django_ayework.rules.cron.expression import Cron, iterator_of, parse_cron
from django_ayework.rules.durations import require_aware

#: What becomes of occurrences in an hour that a clock change leaves out.
Dst: TypeAlias = Literal["skip", "shift"]


def next_after(
    expression: str | Cron, moment: datetime, tz: str | tzinfo | None = None, dst: Dst = "skip"
) -> datetime:
    """Return the first occurrence strictly after an aware moment, in the zone ``tz`` (the moment's, if None).

    An occurrence in an hour that a clock change repeats happens once, the first time. One in an hour that is
    left out does not happen, or with ``dst="shift"`` happens once, at the moment the gap ends.

    Raises CronError for an expression or a zone that cannot be used, and ValueError for a naive moment.

    >>> from datetime import datetime, timezone
    >>> asked = datetime(2026, 3, 7, 12, tzinfo=timezone.utc)
    >>> str(next_after("30 2 * * *", asked, "America/New_York"))
    '2026-03-09 02:30:00-04:00'
    >>> str(next_after("30 2 * * *", asked, "America/New_York", dst="shift"))
    '2026-03-08 03:00:00-04:00'
    """
    require_aware(moment, "moment")
    if dst not in ("skip", "shift"):
        raise CronError(f"expected dst to be 'skip' or 'shift', got: {dst!r}.")
    zone = zone_of(moment.tzinfo if tz is None else tz)
    cron = expression if isinstance(expression, Cron) else parse_cron(expression)
    wall = moment.astimezone(zone).replace(tzinfo=None)
    occurrences = iterator_of(cron, wall)
    # Moments never go backwards as wall-clock time goes on, so the first that is later is the next.
    while True:
        found = moment_at(occurrences.get_next(datetime), zone, dst)
        if found is not None and found.astimezone(UTC) > moment.astimezone(UTC):
            return found


def zone_of(tz: str | tzinfo | None) -> tzinfo:
    """Return a time zone by its IANA name, or as it is."""
    if isinstance(tz, tzinfo):
        return tz
    try:
        return ZoneInfo(str(tz))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise CronError(f"expected a time zone such as 'Europe/Paris', got: {tz!r}.") from None


def moment_at(wall: datetime, zone: tzinfo, dst: Dst) -> datetime | None:
    """Return the moment at which clocks show this time, the first if twice; None if never and skipped."""
    first = wall.replace(tzinfo=zone, fold=0)
    shown = first.astimezone(UTC).astimezone(zone)
    if shown.replace(tzinfo=None) == wall:
        return shown
    return end_of_gap(first, zone) if dst == "shift" else None


def end_of_gap(missing: datetime, zone: tzinfo) -> datetime:
    """Return the moment at which a gap ends, given a wall-clock time within it (PEP 495).

    Read with the offset before the change (fold=0), such a time lies after it; read with the one after it
    (fold=1), before it. The moment in between is found by halving.
    """
    late = missing.astimezone(UTC)
    early = missing.replace(fold=1).astimezone(UTC)
    after = late.astimezone(zone).utcoffset()
    while late - early > timedelta(seconds=1):
        middle = early + (late - early) // 2
        if middle.astimezone(zone).utcoffset() == after:
            late = middle
        else:
            early = middle
    return late.replace(microsecond=0).astimezone(zone)
