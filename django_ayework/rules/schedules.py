"""When schedules have occurrences, by cron expression or interval, and what becomes of missed ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import islice, takewhile
from typing import Literal, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from django_ayework.errors import CronError, did_you_mean
from django_ayework.rules.durations import require_aware

#: The expressions of the nicknames (crontab(5)).
NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


@dataclass(frozen=True, slots=True)
class Field:
    """One of the five fields: its unit, its range, and the names of some numbers."""

    name: str
    first: int
    last: int
    names: tuple[str, ...] = ()
    named_from: int = 0


FIELDS = (
    Field("minute", 0, 59),
    Field("hour", 0, 23),
    Field("day of the month", 1, 31),
    Field("month", 1, 12, MONTHS, 1),
    Field("day of the week", 0, 7, DAYS),
)
PART = re.compile(r"(?P<low>\*|\w{1,9})(-(?P<high>\w{1,9}))?(/(?P<step>\w{1,9}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression that has been read; ``fields`` are its five fields, as numbers or ``*``."""

    expression: str
    fields: tuple[str, str, str, str, str]

    def __str__(self) -> str:
        return self.expression


def parse_cron(expression: str) -> Cron:
    """Read an expression of five fields, or a nickname such as ``@daily``.

    The fields are minute, hour, day of the month, month and day of the week: ``*``, numbers, names of three
    letters, ranges, steps and lists of them. Both 0 and 7 are Sunday. If both days are restricted, one that
    matches is enough (crontab(5)).

    Raises CronError, a ValueError, for anything else, and for a day that never happens, such as 30 February.

    >>> parse_cron("*/15 9-17 * * mon-fri").fields
    ('0,15,30,45', '9,10,11,12,13,14,15,16,17', '*', '*', '1,2,3,4,5')
    >>> parse_cron("0 17-9 * * *")
    Traceback (most recent call last):
    ...
    django_ayework.errors.CronError: '0 17-9 * * *': expected the hour to have ranges from low to high, ...
    """
    if not isinstance(expression, str):
        raise CronError(
            f"expected a cron expression such as '0 3 * * *', got: {expression!r}.{if_interval(expression)}"
        )
    text = expression.strip()
    if text.startswith("@"):
        if text.lower() not in NICKNAMES:
            raise CronError(f"{expression!r} is no nickname.{did_you_mean(text.lower(), NICKNAMES)}")
        text = NICKNAMES[text.lower()]
    parts = text.split()
    if len(parts) != len(FIELDS):
        raise CronError(
            f"{expression!r}: expected five fields (minute, hour, day of the month, month, day of the week), "
            f"got {len(parts)}." + (" Seconds and years are not supported." if len(parts) > 5 else "")
        )
    minute, hour, day, month, weekday = (
        read_field(part, field, expression) for part, field in zip(parts, FIELDS, strict=True)
    )
    cron = Cron(expression, (minute, hour, day, month, weekday))
    require_possible(cron)
    return cron


def if_interval(value: object) -> str:
    """Return the option to write for a number or a timedelta, which is no cron expression.

    >>> if_interval(60), if_interval(None)
    (' Did you mean every=…?', '')
    """
    return " Did you mean every=…?" if isinstance(value, (int, float, timedelta)) else ""


def read_field(text: str, field: Field, expression: str) -> str:
    """Return a field as the numbers it stands for; ``*`` stays, as it leaves the other day to decide."""
    if text == "*":
        return text
    numbers = {number for part in text.split(",") for number in read_part(part, field, expression)}
    if field.last == 7:
        numbers = {number % 7 for number in numbers}
    return ",".join(map(str, sorted(numbers)))


def read_part(text: str, field: Field, expression: str) -> range:
    """Return one part of a list as the numbers it stands for."""
    found = PART.fullmatch(text)
    if found is None or (found["low"] == "*" and found["high"]):
        raise CronError(
            f"{expression!r}: expected the {field.name} to be *, numbers, ranges such as 1-5 or steps such "
            f"as */5, got: {text!r}."
        )
    end = 6 if field.last == 7 else field.last
    step = read_step(found["step"], end, field, expression) if found["step"] else 1
    if found["low"] == "*":
        return range(field.first, end + 1, step)
    low = read_number(found["low"], field, expression)
    if found["high"] is None:
        return range(low, end + 1, step) if found["step"] else range(low, low + 1)
    high = read_number(found["high"], field, expression)
    if high < low:
        raise CronError(
            f"{expression!r}: expected the {field.name} to have ranges from low to high, got: {text!r}; "
            f"write {found['low']}-{field.last},{field.first}-{found['high']} instead."
        )
    return range(low, high + 1, step)


def read_number(text: str, field: Field, expression: str) -> int:
    """Return a number or what a name stands for."""
    if text.lower() in field.names:
        return field.names.index(text.lower()) + field.named_from
    if not text.isdigit() or not field.first <= int(text) <= field.last:
        hint = did_you_mean(text.lower(), field.names) if field.names and not text.isdigit() else ""
        raise CronError(
            f"{expression!r}: expected the {field.name} to be between {field.first} and {field.last}, "
            f"got: {text!r}.{hint}"
        )
    return int(text)


def read_step(text: str, end: int, field: Field, expression: str) -> int:
    """Return a step, no longer than the field: each hour starts anew, so ``*/90`` would mean every hour."""
    longest = end - field.first + 1
    if not text.isdigit() or not 1 <= int(text) <= longest:
        raise CronError(
            f"{expression!r}: expected the {field.name}'s step to be between 1 and {longest}, got: {text!r}. "
            "For other intervals, write every=… instead of cron=…."
        )
    return int(text)


def require_possible(cron: Cron) -> None:
    """Raise for a day that no month has."""
    from croniter import CroniterBadDateError

    try:
        next(wall_times(cron, datetime(2024, 1, 1)))
    except CroniterBadDateError:
        raise CronError(
            f"{cron.expression!r} never happens: no such month has such a day.", code="cron-never-happens"
        ) from None


def wall_times(cron: Cron, start: datetime) -> Iterator[datetime]:
    """Yield the naive wall-clock moments that match, those after ``start``.

    A day is searched for once and gives all of its times: catching up asks for a thousand of them.
    """
    from croniter import croniter  # takes 2 MiB, which a process without cron expressions saves

    minute, hour, *day = cron.fields
    hours, minutes = numbers_of(hour, 24), numbers_of(minute, 60)
    midnight = start.replace(hour=0, minute=0, second=0, microsecond=0)
    days = croniter(f"0 0 {' '.join(day)}", midnight - timedelta(seconds=1))
    while True:
        date = days.get_next(datetime)
        times = (date.replace(hour=hour, minute=minute) for hour in hours for minute in minutes)
        yield from (wall for wall in times if wall > start)


def numbers_of(field: str, end: int) -> list[int]:
    """Return the numbers of a field that has been read."""
    return list(range(end)) if field == "*" else [int(number) for number in field.split(",")]


#: The treatment of occurrences in an hour that a clock change leaves out.
Dst: TypeAlias = Literal["skip", "shift"]


def next_after(
    expression: str | Cron, moment: datetime, tz: str | tzinfo | None = None, dst: Dst = "skip"
) -> datetime:
    """Return the first occurrence strictly after an aware moment, in the zone ``tz`` (the moment's, if None).

    An occurrence in an hour that a clock change repeats happens once, the first time. An occurrence in an
    hour that a clock change leaves out does not happen; with ``dst="shift"`` it happens when the gap ends.

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
    return next(occurrences(cron, moment, zone, dst))


def occurrences(cron: Cron, moment: datetime, zone: tzinfo, dst: Dst) -> Iterator[datetime]:
    """Yield the occurrences strictly after an aware moment, in order.

    Moments never go backwards as wall-clock time goes on, so the first that is later is the next.
    """
    last = moment.astimezone(UTC)
    for wall in wall_times(cron, moment.astimezone(zone).replace(tzinfo=None)):
        found = moment_at(wall, zone, dst)
        if found is not None and (later := found.astimezone(UTC)) > last:
            last = later
            yield found


def zone_of(tz: str | tzinfo | None) -> tzinfo:
    """Return a time zone by its IANA name, or as it is."""
    if isinstance(tz, tzinfo):
        return tz
    try:
        return ZoneInfo(str(tz))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise CronError(
            f"expected a time zone such as 'Europe/Paris', got: {tz!r}."
            f"{did_you_mean(str(tz), available_timezones())}",
            code="time-zone-unknown",
        ) from None


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
        return next(self._after(moment), None)

    def between(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """Yield the occurrences after one moment, up to another and including it."""
        return takewhile(lambda found: found <= until, self._after(after))

    def _after(self, moment: datetime) -> Iterator[datetime]:
        if self.start is not None:
            moment = max(moment, before(self.start))
        try:
            for found in self._of_cron(moment) if self.every is None else self._of_interval(moment):
                if self.end is not None and found > self.end:
                    return
                yield found
        except OverflowError:  # beyond the last moment there is
            return

    def _of_cron(self, moment: datetime) -> Iterator[datetime]:
        found = occurrences(parsed(self.cron), moment, zone_of(self.tz), self.dst)
        return (each.astimezone(UTC) for each in found)

    def _of_interval(self, moment: datetime) -> Iterator[datetime]:
        step = timedelta(seconds=self.every or 0)
        anchor = self.start or self.anchor or moment
        if anchor > moment:
            found = anchor.astimezone(UTC) - (anchor - moment - INSTANT) // step * step
        else:
            found = anchor.astimezone(UTC) + ((moment - anchor) // step + 1) * step
        while True:
            yield found
            found += step

    def latest(self, first: datetime, now: datetime, number: int) -> list[datetime]:
        """Return the last so many occurrences from ``first`` until ``now``, in order.

        If there are more, the search goes back from now in windows that double. So its cost grows with the
        result, and not with the years since the schedule last fired.
        """
        found = list(islice(self.between(before(first), now), number + 1))
        if len(found) <= number:
            return found
        step = timedelta(minutes=1) if self.every is None else timedelta(seconds=self.every)
        window = step * (number + 1)
        while now - window > first:
            found = list(self.between(now - window, now))
            if len(found) >= number:
                return found[-number:]
            window *= 2
        return list(self.between(before(first), now))[-number:]


def before(moment: datetime) -> datetime:
    """Return the latest moment before another, in UTC: clocks of a zone may leave it out."""
    return moment.astimezone(UTC) - INSTANT


CatchUp: TypeAlias = Literal["none", "last", "all"]
Overlap: TypeAlias = Literal["allow", "skip", "queue"]

#: With "all", so many are made up for; with overlap="queue", so many wait. No count of missed ones is larger.
BOUND = 1000
#: An occurrence that is no later than this is on time: what a tick takes, and the wait for it.
PUNCTUAL = timedelta(seconds=2)


@dataclass(frozen=True, slots=True)
class FiringPlan:
    """The decision of a tick: the occurrence to fire, or None, and the number missed from ``missed_from`` on.

    ``last`` is the last occurrence that is dealt with; the next one is the first after it.
    """

    last: datetime
    fire: datetime | None = None
    missed_from: datetime | None = None
    missed: int = 0


def plan(
    timing: Timing | None,
    first: datetime,
    now: datetime,
    catch_up: CatchUp,
    slack: timedelta,
    was_tried: bool = False,
) -> FiringPlan:
    """Decide about the occurrences from ``first`` until ``now``.

    Without a timing ``first`` is the only one. ``slack`` is how much later than planned one may be fired and
    still be on time. If ``first`` was tried and has failed, it is on time until the next one is due.

    >>> from datetime import UTC
    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> late = noon + timedelta(minutes=3)
    >>> decided = plan(Timing(cron="* * * * *"), noon, late, "last", PUNCTUAL)
    >>> decided.fire == late, decided.missed
    (True, 3)
    """
    due = [first] if timing is None else timing.latest(first, now, BOUND if catch_up == "all" else 1)
    if not due:  # it has been changed meanwhile
        return FiringPlan(last=first, missed_from=first, missed=1)
    fire = due[0]
    if catch_up == "none" and now - fire > slack and not (was_tried and fire == first):
        return FiringPlan(last=fire, missed_from=first, missed=counted(timing, first, fire) + 1)
    missed = counted(timing, first, fire)
    return FiringPlan(last=fire, fire=fire, missed_from=first if missed else None, missed=missed)


def counted(timing: Timing | None, first: datetime, before: datetime) -> int:
    """Return how many occurrences there are from ``first`` on, before another; no more than BOUND."""
    if timing is None or first >= before:
        return 0
    later = timing.between(first, before)
    return 1 + sum(1 for found in islice(later, BOUND - 1) if found < before)


def pause_after_failures(failures: int) -> float:
    """Return the seconds until the next try, after so many failures in a row.

    >>> [pause_after_failures(failures) for failures in (1, 2, 3, 20)]
    [5.0, 10.0, 20.0, 300.0]
    """
    return float(min(5 * 2 ** min(failures - 1, 10), 300))


#: So often an occurrence is tried; then it has failed, and the next one has its turn.
TRIES = 10
