"""JSON text: codecs and custom types, how plain data is written, and the single values that are tagged.

*Plain* data is what ``json`` alone brings back unchanged. Everything else is wrapped as
``{"$ayework": "<tag>", "value": …}``.
"""

from __future__ import annotations

import builtins
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Context, Decimal, InvalidOperation
from math import isfinite
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable
from uuid import UUID
from zoneinfo import ZoneInfo

from django_ayework.compat import json_writer
from django_ayework.documentation import type_error, value_error
from django_ayework.rules.codec.refusals import Refusal, message_of

TAG = "$ayework"
VALUE = "value"

#: Whole numbers of this size and beyond are tagged: many JSON readers would round them.
BIG = 2**53

#: The place between the two halves of a surrogate pair that a text has as two characters.
SPLIT_PAIR = re.compile("(?<=[\ud800-\udbff])(?=[\udc00-\udfff])")

T = TypeVar("T")


@runtime_checkable
class Codec(Protocol):
    """Turns the values of a work into text for the database, and back.

    The text must be free of NUL characters and encodable as UTF-8, as every supported database asks.
    """

    def encode(self, value: Any) -> str:
        """Return the text for ``value``, or raise ``NotEncodable``."""
        ...

    def decode(self, text: str) -> Any:
        """Return the value ``text`` stands for, or raise ``NotDecodable``."""
        ...


@dataclass(frozen=True, kw_only=True)
class CustomType(Generic[T]):
    """How values of one class, and of its subclasses, are written and read.

    ``to_plain`` may return anything the codec can encode, rich values included; ``from_plain`` gets the same
    back. ``tag`` is stored with every value: choose it once, and keep it when the class is renamed or moved.

    >>> from django_ayework.rules.codec import RichJSON
    >>> point = CustomType(tag="complex", type=complex,
    ...     to_plain=lambda c: [c.real, c.imag], from_plain=lambda parts: complex(*parts))
    >>> codec = RichJSON(extra=[point])
    >>> codec.encode(1 + 2j)
    '{"$ayework":"complex","value":[1.0,2.0]}'
    >>> codec.decode(codec.encode(1 + 2j))
    (1+2j)
    """

    tag: str
    type: builtins.type[T]
    to_plain: Callable[[T], Any]
    from_plain: Callable[[Any], T]

    def __post_init__(self) -> None:
        if not isinstance(self.tag, str) or not self.tag:
            raise type_error(
                "custom-type-not-usable", f"expected tag to be a text that is not empty, got: {self.tag!r}"
            )
        if not isinstance(self.type, builtins.type):
            raise type_error("custom-type-not-usable", f"expected type to be a class, got: {self.type!r}")
        if self.type in (type(None), bool, int, float, str, list, dict, object):
            raise value_error(
                "custom-type-not-usable",
                f"expected a class without a JSON form of its own, got: {self.type.__name__}",
            )
        if not callable(self.to_plain) or not callable(self.from_plain):
            raise type_error(
                "custom-type-not-usable",
                f"expected to_plain and from_plain of tag {self.tag!r} to be callable",
            )


class UnknownTag(dict[str, Any]):
    """A wrapper whose tag this codec does not know, written perhaps by a newer release.

    It is a dict with the stored content. A class of its own lets the codec write it back unchanged, while a
    user's mapping that only looks like a wrapper is escaped.
    """

    __slots__ = ()


def tagged(tag: str, value: Any) -> dict[str, Any]:
    """Wrap ``value``.

    >>> tagged("date", "2026-05-01")
    {'$ayework': 'date', 'value': '2026-05-01'}
    """
    return {TAG: tag, VALUE: value}


#: Writes compact JSON in which text stays readable.
write = json_writer(ensure_ascii=False)

#: Writes compact JSON in ASCII.
write_escaped = json_writer(ensure_ascii=True)


def has_surrogates(text: str) -> bool:
    """Tell whether ``text`` holds characters that UTF-8 cannot express."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def pieces(text: str) -> list[str]:
    """Split ``text`` wherever JSON would merge two surrogates into one character; most texts are one piece.

    >>> pieces("tea")
    ['tea']
    """
    return SPLIT_PAIR.split(text) if has_surrogates(text) else [text]


HEX = re.compile("-?0x[0-9a-f]+")
NOT_FINITE = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}

ZONE_NAME = r"[A-Za-z0-9_+./-]+"
FOLD = "[_fold=1]"
TINY_OFFSET = re.compile(r"([+-])00:00:00\.([0-9]{6})$")
MOMENT = re.compile(rf"(?P<iso>[^\[\]]+)(\[(?P<zone>{ZONE_NAME})\])?(?P<fold>{re.escape(FOLD)})?")

#: Refuses malformed text whatever the thread's own context would let pass; it never rounds.
STRICT = Context(traps=[InvalidOperation])

M = TypeVar("M", datetime, time)


def text_to_plain(value: str) -> Any:
    """Return text as it is; in pieces where JSON would merge two surrogates into one character."""
    parts = pieces(str.__str__(value))
    return parts[0] if len(parts) == 1 else tagged("str", parts)


def int_to_plain(value: int) -> Any:
    """Return a small whole number as it is, a big one as hexadecimal text, which has no limit on digits."""
    return value if -BIG < value < BIG else tagged("int", hex(value))


def int_from_text(text: Any) -> int:
    """Return a big whole number.

    >>> int_from_text("-0x20000000000000")
    -9007199254740992
    """
    if not HEX.fullmatch(text):
        raise ValueError("expected hexadecimal digits")
    return int(text, 16)


def float_to_plain(value: float) -> Any:
    """Return a finite number as it is, NaN and infinities as text."""
    return value if isfinite(value) else tagged("float", float.__repr__(value))


def moment_to_text(value: datetime | time) -> str:
    """Return the text for a datetime or a time of day, aware or naive; raise ``Refusal`` for an odd zone."""
    refuse_inexact(value)
    name = zone_name(value.tzinfo)
    if value.tzinfo is not None and name is None and value.utcoffset() is None:
        raise Refusal(
            expected="a time zone with a name or an offset",
            got=type(value.tzinfo).__name__,
            advice="use a zoneinfo.ZoneInfo or a datetime.timezone",
        )
    iso = datetime.isoformat(value) if isinstance(value, datetime) else time.isoformat(value)
    return iso + (f"[{name}]" if name else "") + (FOLD if value.fold else "")


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


def datetime_from_text(text: str) -> datetime:
    """Return the datetime, in its ``ZoneInfo`` if it had one, else with its offset, else naive."""
    value, zone = moment_and_zone(datetime, text)
    if zone is None:
        return value
    local = value.replace(tzinfo=zone)
    # If the zone's rules have changed since the value was stored, the instant is kept, not the clock's time.
    unchanged = value.tzinfo is None or local.utcoffset() == value.utcoffset()
    return local if unchanged else value.astimezone(zone)


def time_from_text(text: str) -> time:
    """Return the time of day, with its ``ZoneInfo`` or offset if it had one."""
    value, zone = moment_and_zone(time, text)
    return value if zone is None else value.replace(tzinfo=zone)


def moment_and_zone(kind: type[M], text: str) -> tuple[M, ZoneInfo | None]:
    """Return a stored moment with its offset, and its zone; any exception means that it is malformed."""
    found = MOMENT.fullmatch(text)
    if found is None:
        raise ValueError("expected an ISO 8601 text")
    value = kind.fromisoformat(found["iso"]).replace(fold=1 if found["fold"] else 0)
    if tiny := TINY_OFFSET.search(found["iso"]):  # shorter than a second: fromisoformat reads it as UTC
        value = value.replace(tzinfo=timezone(timedelta(microseconds=int(tiny[1] + tiny[2]))))
    return value, ZoneInfo(found["zone"]) if found["zone"] else None


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


class StoredException(Exception):
    """An exception as it was stored: the name of its class and its message.

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
        return self.args == other.args if isinstance(other, StoredException) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.args)


def exception_to_plain(error: BaseException) -> dict[str, str]:
    """Return the name and the message of ``error``.

    >>> exception_to_plain(ZeroDivisionError("division by zero"))
    {'name': 'ZeroDivisionError', 'message': 'division by zero'}
    """
    if isinstance(error, StoredException):
        return {"name": error.name, "message": error.message}
    return {"name": type(error).__name__, "message": message_of(error)}


def exception_from_plain(plain: Any) -> StoredException:
    """Return the stored exception; raise ValueError if ``plain`` is not the name and the message."""
    if type(plain) is not dict or plain.keys() != {"name", "message"}:
        raise ValueError("expected a name and a message")
    return StoredException(require_text(plain["name"]), require_text(plain["message"]))


def require_text(value: Any) -> str:
    """Return ``value``, which must be a text."""
    if type(value) is not str:
        raise TypeError("expected a text")
    return value


def scalar(tag: str, kind: Any, to_plain: Any, from_plain: Any) -> CustomType[Any]:
    """Return a row of ``SCALARS``."""
    return CustomType(tag=tag, type=kind, to_plain=to_plain, from_plain=from_plain)


def bytes_to_text(value: bytes | bytearray | memoryview) -> str:
    """Return base64.

    >>> bytes_to_text(b"tea")
    'dGVh'
    """
    return b64encode(bytes(value)).decode()


def bytes_from_text(text: Any) -> bytes:
    """Return the bytes; raise an exception if ``text`` is not base64."""
    return b64decode(require_text(text), validate=True)


#: The single values JSON does not know: tag, type, how each is written, and how it is read.
SCALARS: tuple[CustomType[Any], ...] = (
    scalar("datetime", datetime, moment_to_text, datetime_from_text),
    scalar("date", date, date.isoformat, date.fromisoformat),
    scalar("time", time, moment_to_text, time_from_text),
    scalar("timedelta", timedelta, timedelta_to_parts, timedelta_from_parts),
    scalar("decimal", Decimal, Decimal.__str__, lambda text: Decimal(require_text(text), STRICT)),
    scalar("uuid", UUID, UUID.__str__, lambda text: UUID(require_text(text))),
    scalar("bytes", bytes, bytes_to_text, bytes_from_text),
    scalar("bytes", bytearray, bytes_to_text, bytes_from_text),
    scalar("bytes", memoryview, bytes_to_text, bytes_from_text),
    scalar("exception", BaseException, exception_to_plain, exception_from_plain),
)
