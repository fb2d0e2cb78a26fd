"""When a schedule has occurrences: by a cron expression, or every so many seconds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from django_ayework.rules.cron import Cron, Dst, next_after, parse_cron

#: The smallest difference between two moments.
INSTANT = timedelta(microseconds=1)


@lru_cache(maxsize=1000)
def parsed(cron: str) -> Cron:
    """Read an expression, once: catching up asks for hundreds of occurrences."""
    return parse_cron(cron)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The occurrences of a schedule; exactly one of ``cron`` and ``every`` (seconds) is given.

    ``anchor`` is a moment from which ``every`` counts. Occurrences before ``start`` and after ``end`` do not
    happen.

    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> str(Timing(every=60, anchor=noon).first_after(noon))
    '2026-01-01 12:01:00+00:00'
    """

    cron: str = ""
    every: float | None = None
    anchor: datetime | None = None
    tz: str = "UTC"
    dst: Dst = "skip"
    start: datetime | None = None
    end: datetime | None = None

    def first_after(self, moment: datetime) -> datetime | None:
        """Return the first occurrence strictly after a moment, in UTC; None when there is none any more."""
        if self.start is not None:
            moment = max(moment, self.start - INSTANT)
        try:
            found = self._cron_after(moment) if self.every is None else self._interval_after(moment)
        except OverflowError:  # beyond the last moment there is
            return None
        return None if self.end is not None and found > self.end else found

    def _cron_after(self, moment: datetime) -> datetime:
        return next_after(parsed(self.cron), moment, self.tz, self.dst).astimezone(UTC)

    def _interval_after(self, moment: datetime) -> datetime:
        step = timedelta(seconds=self.every or 0)
        anchor = self.start or self.anchor or moment
        if anchor > moment:
            return anchor.astimezone(UTC) - (anchor - moment - INSTANT) // step * step
        return anchor.astimezone(UTC) + ((moment - anchor) // step + 1) * step

    def between(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """Yield the occurrences after one moment, up to another and including it."""
        found = self.first_after(after)
        while found is not None and found <= until:
            yield found
            found = self.first_after(found)

    def latest(self, first: datetime, now: datetime, number: int) -> list[datetime]:
        """Return the last so many occurrences from ``first`` until ``now``, in order.

        The way leads back from now in windows that double, so it costs what is returned and not the years
        that a schedule may have slept.
        """
        step = timedelta(minutes=1) if self.every is None else timedelta(seconds=self.every)
        window = step * (number + 1)
        while now - window > first:
            found = list(self.between(now - window, now))
            if len(found) >= number:
                return found[-number:]
            window *= 2
        return list(self.between(first - INSTANT, now))[-number:]
