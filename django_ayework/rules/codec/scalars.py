"""Single values that JSON does not know: dates, decimals, UUIDs, bytes and exceptions."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Context, Decimal, InvalidOperation
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

from django_ayework.rules.codec.containers import Refusal
from django_ayework.rules.codec.text import CustomType

# --- moments ---
# Dates and times as ISO 8601 text, with the time zone's name in brackets as in RFC 9557.
#
# >>> from datetime import datetime
# >>> from zoneinfo import ZoneInfo
# >>> datetime_to_text(datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Paris"), fold=1))
# '2026-10-25T02:30:00+01:00[Europe/Paris][_fold=1]'

ZONE_NAME = r"[A-Za-z0-9_+./-]+"
FOLD = "[_fold=1]"
TINY_OFFSET = re.compile(r"([+-])00:00:00\.([0-9]{6})$")
STORED = re.compile(rf"(?P<iso>[^\[\]]+)(\[(?P<zone>{ZONE_NAME})\])?(?P<fold>{re.escape(FOLD)})?")


class Stored(NamedTuple):
    """The parts of a stored moment."""

    iso: str
    zone: ZoneInfo | None
    fold: int


def parts(text: str) -> Stored:
    """Take a stored moment apart; raise ValueError, TypeError or KeyError if that is impossible."""
    found = STORED.fullmatch(text)
    if found is None:
        raise ValueError("expected an ISO 8601 text")
    zone = ZoneInfo(found["zone"]) if found["zone"] else None
    return Stored(found["iso"], zone, 1 if found["fold"] else 0)


def datetime_to_text(value: datetime) -> str:
    """Return the text for a datetime, aware or naive."""
    refuse_inexact(value)
    return datetime.isoformat(value) + suffixes(value)


def datetime_from_text(text: str) -> datetime:
    """Return the datetime, in its ``ZoneInfo`` if it had one, else with its offset, else naive."""
    stored = parts(text)
    value = datetime.fromisoformat(stored.iso).replace(fold=stored.fold)
    if tiny := tiny_offset(stored.iso):
        value = value.replace(tzinfo=tiny)
    return value if stored.zone is None else in_zone(value, stored.zone)


def in_zone(value: datetime, zone: ZoneInfo) -> datetime:
    """Return ``value`` in ``zone``, with the same reading of the clock.

    If the rules of the zone have changed since the value was stored, the instant is kept instead.
    """
    local = value.replace(tzinfo=zone)
    if value.tzinfo is None or local.utcoffset() == value.utcoffset():
        return local
    return value.astimezone(zone)


def time_to_text(value: time) -> str:
    """Return the text for a time of day, aware or naive."""
    refuse_inexact(value)
    return time.isoformat(value) + suffixes(value)


def time_from_text(text: str) -> time:
    """Return the time of day, with its ``ZoneInfo`` or offset if it had one."""
    stored = parts(text)
    value = time.fromisoformat(stored.iso).replace(fold=stored.fold)
    if tiny := tiny_offset(stored.iso):
        value = value.replace(tzinfo=tiny)
    return value if stored.zone is None else value.replace(tzinfo=stored.zone)


def tiny_offset(iso: str) -> timezone | None:
    """Return the offset if it is shorter than a second; ``fromisoformat`` takes these for UTC."""
    found = TINY_OFFSET.search(iso)
    return timezone(timedelta(microseconds=int(found[1] + found[2]))) if found else None


def date_to_text(value: date) -> str:
    """Return the text for a date."""
    return date.isoformat(value)


def date_from_text(text: str) -> date:
    """Return the date."""
    return date.fromisoformat(text)


def timedelta_to_parts(value: timedelta) -> list[int]:
    """Return days, seconds and microseconds, which are exact.

    >>> timedelta_to_parts(timedelta(hours=-1))
    [-1, 82800, 0]
    """
    refuse_inexact(value)
    return [value.days, value.seconds, value.microseconds]


def timedelta_from_parts(plain: Any) -> timedelta:
    """Return the duration; raise ValueError or OverflowError if ``plain`` is not one."""
    if type(plain) is not list or [type(part) for part in plain] != [int, int, int]:
        raise ValueError("expected days, seconds and microseconds")
    return timedelta(*plain)


def suffixes(value: datetime | time) -> str:
    """Return the zone and the fold in brackets, where there are any."""
    name = zone_name(value.tzinfo)
    if value.tzinfo is not None and name is None and value.utcoffset() is None:
        raise Refusal(
            expected="a time zone with a name or an offset",
            got=type(value.tzinfo).__name__,
            advice="use a zoneinfo.ZoneInfo or a datetime.timezone",
        )
    return (f"[{name}]" if name else "") + (FOLD if value.fold else "")


def zone_name(zone: tzinfo | None) -> str | None:
    """Return the name under which ``zone`` can be found again, if there is one."""
    name = zone.key if isinstance(zone, ZoneInfo) else None
    if not name or not re.fullmatch(ZONE_NAME, name):
        return None
    try:
        return ZoneInfo(name).key
    except (OSError, ValueError, KeyError):  # made from a file, under a name of its own
        return None


def refuse_inexact(value: datetime | time | timedelta) -> None:
    """Refuse the missing and the sub-microsecond values of libraries that extend these classes."""
    finer = getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0)
    if finer or value != value:
        raise Refusal(
            expected="a moment in whole microseconds",
            got=type(value).__name__,
            advice="round it, and pass None where a value is missing",
        )


# --- stored ---
# Exceptions, kept as a name and a message.


class StoredException(Exception):
    """What is left of an exception after it was stored: the name of its class and its message.

    The original class is neither imported nor called.

    >>> StoredException("ValueError", "no such colour")
    StoredException('ValueError', 'no such colour')
    >>> print(StoredException("ValueError", "no such colour"))
    ValueError: no such colour
    """

    def __init__(self, name: str, message: str) -> None:
        super().__init__(name, message)
        self.name = name
        self.message = message

    def __str__(self) -> str:
        return f"{self.name}: {self.message}" if self.message else self.name

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StoredException):
            return NotImplemented
        return (self.name, self.message) == (other.name, other.message)

    def __hash__(self) -> int:
        return hash((self.name, self.message))


def exception_to_plain(error: BaseException) -> dict[str, str]:
    """Return the name and the message of ``error``.

    >>> exception_to_plain(ZeroDivisionError("division by zero"))
    {'name': 'ZeroDivisionError', 'message': 'division by zero'}
    """
    if isinstance(error, StoredException):
        return {"name": error.name, "message": error.message}
    return {"name": type(error).__name__, "message": message_of(error)}


def message_of(error: BaseException) -> str:
    """Return ``str(error)``, or a note if even that fails."""
    try:
        return str(error)
    except Exception:
        return "<its message cannot be read>"


def exception_from_plain(plain: Any) -> StoredException:
    """Return the stored exception; raise ValueError if ``plain`` is not the name and the message."""
    if type(plain) is not dict or plain.keys() != {"name", "message"}:
        raise ValueError("expected a name and a message")
    if not all(type(part) is str for part in plain.values()):
        raise ValueError("expected the name and the message to be texts")
    return StoredException(plain["name"], plain["message"])


# --- scalars ---
# The single values JSON does not know: how each is written and read.

#: Refuses malformed text whatever the thread's own context would let pass; it never rounds.
STRICT = Context(traps=[InvalidOperation])


def decimal_from_text(text: Any) -> Decimal:
    """Return the number, NaN and infinities included; raise an error if ``text`` is not one."""
    return Decimal(require_text(text), STRICT)


def uuid_from_text(text: Any) -> UUID:
    """Return the UUID; raise an error if ``text`` is not one."""
    return UUID(require_text(text))


def bytes_to_text(value: bytes | bytearray | memoryview) -> str:
    """Return base64.

    >>> bytes_to_text(b"tea")
    'dGVh'
    """
    return b64encode(bytes(value)).decode()


def bytes_from_text(text: Any) -> bytes:
    """Return the bytes; raise an error if ``text`` is not base64."""
    return b64decode(require_text(text), validate=True)


def require_text(value: Any) -> str:
    """Return ``value``, which must be a text."""
    if type(value) is not str:
        raise TypeError("expected a text")
    return value


SCALARS: tuple[CustomType[Any], ...] = (
    CustomType(
        tag="datetime",
        type=datetime,
        to_plain=datetime_to_text,
        from_plain=datetime_from_text,
    ),
    CustomType(tag="date", type=date, to_plain=date_to_text, from_plain=date_from_text),
    CustomType(tag="time", type=time, to_plain=time_to_text, from_plain=time_from_text),
    CustomType(
        tag="timedelta",
        type=timedelta,
        to_plain=timedelta_to_parts,
        from_plain=timedelta_from_parts,
    ),
    CustomType(tag="decimal", type=Decimal, to_plain=Decimal.__str__, from_plain=decimal_from_text),
    CustomType(tag="uuid", type=UUID, to_plain=UUID.__str__, from_plain=uuid_from_text),
    CustomType(tag="bytes", type=bytes, to_plain=bytes_to_text, from_plain=bytes_from_text),
    CustomType[Any](tag="bytes", type=bytearray, to_plain=bytes_to_text, from_plain=bytes_from_text),
    CustomType[Any](tag="bytes", type=memoryview, to_plain=bytes_to_text, from_plain=bytes_from_text),
    CustomType[BaseException](
        tag="exception", type=BaseException, to_plain=exception_to_plain, from_plain=exception_from_plain
    ),
)
