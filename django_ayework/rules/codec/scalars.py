"""The single values JSON does not know: how each is written and read."""

from __future__ import annotations

from base64 import b64decode, b64encode
from datetime import date, datetime, time, timedelta
from decimal import Context, Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from django_ayework.rules.codec import moments
from django_ayework.rules.codec.custom import CustomType
from django_ayework.rules.codec.stored import exception_from_plain, exception_to_plain

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
        to_plain=moments.datetime_to_text,
        from_plain=moments.datetime_from_text,
    ),
    CustomType(tag="date", type=date, to_plain=moments.date_to_text, from_plain=moments.date_from_text),
    CustomType(tag="time", type=time, to_plain=moments.time_to_text, from_plain=moments.time_from_text),
    CustomType(
        tag="timedelta",
        type=timedelta,
        to_plain=moments.timedelta_to_parts,
        from_plain=moments.timedelta_from_parts,
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
