"""Reading a cron expression: what is accepted is what is meant, anything else is refused with its place."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from croniter import CroniterBadDateError, croniter

from django_ayework.errors import CronError, did_you_mean

#: What the nicknames stand for (crontab(5)).
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
    """One of the five fields: what it counts, from where to where, and the names some numbers have."""

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
PART = re.compile(r"(?P<low>\*|\w+)(-(?P<high>\w+))?(/(?P<step>\w+))?", re.ASCII)


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
    letters, ranges, steps and lists of them. 7 is Sunday as well as 0. If both days are restricted, either
    will do (crontab(5)).

    Raises CronError, a ValueError, for anything else, and for what never happens, such as 30 February.

    >>> parse_cron("*/15 9-17 * * mon-fri").fields
    ('0,15,30,45', '9,10,11,12,13,14,15,16,17', '*', '*', '1,2,3,4,5')
    >>> parse_cron("0 17-9 * * *")
    Traceback (most recent call last):
    ...
    django_ayework.errors.CronError: '0 17-9 * * *': expected the hour to have ranges from low to high, ...
    """
    if not isinstance(expression, str):
        raise CronError(f"expected a cron expression such as '0 3 * * *', got: {expression!r}.")
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
    step = read_step(found["step"], field, expression) if found["step"] else 1
    end = 6 if field.last == 7 else field.last
    if found["low"] == "*":
        return range(field.first, end + 1, step)
    low = read_number(found["low"], field, expression)
    if found["high"] is None:
        return range(low, end + 1, step) if found["step"] else range(low, low + 1)
    high = read_number(found["high"], field, expression)
    if high < low:
        raise CronError(
            f"{expression!r}: expected the {field.name} to have ranges from low to high, got: {text!r}; "
            f"write {found['low']}-{field.last},{field.first}-{found['high']} for one that goes round."
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


def read_step(text: str, field: Field, expression: str) -> int:
    """Return a step, 1 or more."""
    if not text.isdigit() or int(text) < 1:
        raise CronError(f"{expression!r}: expected the {field.name}'s step to be 1 or more, got: {text!r}.")
    return int(text)


def require_possible(cron: Cron) -> None:
    """Raise for a day that no month has."""
    try:
        iterator_of(cron, datetime(2024, 1, 1)).get_next(datetime)  # wall-clock time
    except CroniterBadDateError:
        raise CronError(f"{cron.expression!r} never happens: no such month has such a day.") from None


def iterator_of(cron: Cron, start: datetime) -> croniter:
    """Return the naive wall-clock moments that match, those after ``start``."""
    return croniter(" ".join(cron.fields), start)
