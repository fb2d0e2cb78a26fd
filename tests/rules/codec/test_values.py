"""What goes in comes out, with its type, as text that any database can hold."""

import json
from collections import Counter, OrderedDict, UserDict, defaultdict, namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Context, Decimal, InvalidOperation, localcontext
from enum import Enum, IntEnum, IntFlag, StrEnum
from io import BytesIO
from struct import pack
from types import MappingProxyType
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from django.utils.functional import lazy
from django.utils.safestring import mark_safe
from hypothesis import example, given, settings

from django_ayework.errors import NotDecodable, NotEncodable
from django_ayework.rules.codec import Codec, RichJSON, decode, encode, richjson
from tests.rules.codec.values import TAG, fingerprint, values

patient = settings(deadline=None)
PARIS = ZoneInfo("Europe/Paris")
ODD = timezone(timedelta(hours=5, minutes=53, seconds=28, microseconds=1))
BARELY_WEST = timezone(-timedelta(microseconds=1))
MAY = datetime(2026, 5, 1, 9)
AUTUMN = datetime(2026, 10, 25, 2, 30, tzinfo=PARIS)
SPRING = datetime(2026, 3, 29, 2, 30, tzinfo=PARIS)
#: A zone file without transitions, two hours ahead of UTC.
TWO_HOURS = b"TZif" + bytes(16) + pack(">6l", 0, 0, 0, 0, 1, 4) + pack(">lbb", 7200, 0, 0) + b"TWO\0"
Point = namedtuple("Point", "x y")


class Nameless(tzinfo):
    """A zone of another library."""

    def __init__(self, offset: timedelta | None) -> None:
        self.offset = offset

    def utcoffset(self, when: datetime | None) -> timedelta | None:
        return self.offset

    def dst(self, when: datetime | None) -> timedelta | None:
        return None


class Timestamp(datetime):
    """Like the one of pandas."""

    nanosecond = 0


class FineTimestamp(Timestamp):
    nanosecond = 7


class FineDelta(timedelta):
    nanoseconds = 7


class Missing(datetime):
    """Like pandas' NaT: a datetime that is none."""

    __hash__ = datetime.__hash__
    __eq__ = lambda self, other: False  # noqa: E731
    __ne__ = lambda self, other: True  # noqa: E731


class Shouting(str):
    def __str__(self):
        return self.upper()


Size = IntEnum("Size", {"SMALL": 1, "HUGE": 2**60})
Access = IntFlag("Access", {"READ": 1, "WRITE": 2})
Ratio = Enum("Ratio", {"HALF": 0.5}, type=float)
Colour = StrEnum("Colour", {"RED": "red"})
OldColour = Enum("OldColour", {"RED": "red"}, type=str)
Lines = type("Lines", (list,), {})


def stored(tag: str, value: str) -> str:
    return f'{{"$ayework":"{tag}","value":"{value}"}}'


@patient
@given(values)
@example({"$ayework": "decimal", "value": "1"})
@example({"a": [{"$ayework": "decimal", "value": "1"}]})
@example({1: {"$ayework": 1}})
@example({"\ud800\udc00": 1, "\ud83d\ude00 is not": "\U0001f600"})
@example([True, 1, 1.0, -0.0])
@example("\x00")
@example(["\ud800", "é", "\x00"])
@example({"a": 1, "b": "tea"})
def test_every_supported_value_comes_back_as_it_was_from_json_without_nul(value):
    text = encode(value)
    read = decode(text)
    assert fingerprint(read) == fingerprint(value)
    assert encode(read) == text
    assert "\x00" not in text
    json.loads(text.encode())
    with pytest.MonkeyPatch.context() as patch:  # the short cut writes what the walk writes
        patch.setattr(richjson, "is_plain", lambda value: False)
        assert encode(value) == text


DECIMALS = ("1.50", "-0", "1E+400", "NaN", "-sNaN7", "Infinity", "-Infinity", "0E-9")
LARGE = stored("int", "0x20000000000000")
MOMENTS = [
    (MAY, "2026-05-01T09:00:00"),
    (MAY.replace(microsecond=1, tzinfo=UTC), "2026-05-01T09:00:00.000001+00:00"),
    (MAY.replace(tzinfo=ODD), "2026-05-01T09:00:00+05:53:28.000001"),
    (MAY.replace(tzinfo=ZoneInfo("UTC")), "2026-05-01T09:00:00+00:00[UTC]"),
    (MAY.replace(tzinfo=PARIS), "2026-05-01T09:00:00+02:00[Europe/Paris]"),
    (MAY.replace(tzinfo=BARELY_WEST), "2026-05-01T09:00:00-00:00:00.000001"),  # an offset nobody has
    (datetime.min, "0001-01-01T00:00:00"),
    (datetime.max.replace(tzinfo=PARIS), "9999-12-31T23:59:59.999999+01:00[Europe/Paris]"),
    (MAY.replace(fold=1), "2026-05-01T09:00:00[_fold=1]"),
    # The hour that comes twice, and the hour that never comes.
    (AUTUMN, "2026-10-25T02:30:00+02:00[Europe/Paris]"),
    (AUTUMN.replace(fold=1), "2026-10-25T02:30:00+01:00[Europe/Paris][_fold=1]"),
    (SPRING, "2026-03-29T02:30:00+01:00[Europe/Paris]"),
    (SPRING.replace(fold=1), "2026-03-29T02:30:00+02:00[Europe/Paris][_fold=1]"),
]


@pytest.mark.parametrize(("value", "text"), [
    (None, "null"), (True, "true"), (-0.0, "-0.0"), ("\x00\n", r'"\u0000\n"'), ({}, "{}"),
    ({"name": "Zoë", "n": [1, 2.5]}, '{"name":"Zoë","n":[1,2.5]}'),
    # Mappings that need more than a JSON object.
    ({1: "a", "b": 2}, '{"$ayework":"dict","value":[[1,"a"],["b",2]]}'),
    ({TAG: "date"}, '{"$ayework":"dict","value":[["$ayework","date"]]}'),
    ((), '{"$ayework":"tuple","value":[]}'), (("é",), '{"$ayework":"tuple","value":["é"]}'),
    ({3, 1, 2}, '{"$ayework":"set","value":[1,2,3]}'),
    (frozenset("ab"), '{"$ayework":"frozenset","value":["a","b"]}'),
    (b"tea", '{"$ayework":"bytes","value":"dGVh"}'),
    # Surrogates cost readability, for the whole text.
    (["é", "\ud800"], r'["\u00e9","\ud800"]'),
    ("\ud800\udc00", r'{"$ayework":"str","value":["\ud800","\udc00"]}'),
    # Whole numbers are tagged where other readers would round.
    (2**53 - 1, "9007199254740991"), (-(2**53) + 1, "-9007199254740991"),
    (2**53, LARGE), (-(2**53), stored("int", "-0x20000000000000")),
    ((2**53,), f'{{"$ayework":"tuple","value":[{LARGE}]}}'),
    (UUID(int=1), stored("uuid", "00000000-0000-0000-0000-000000000001")),
    *((float(text), stored("float", text)) for text in ("nan", "inf", "-inf")),
    *((Decimal(text), stored("decimal", text)) for text in DECIMALS),
    (timedelta(days=1, hours=1), '{"$ayework":"timedelta","value":[1,3600,0]}'),
    (timedelta(microseconds=-1), '{"$ayework":"timedelta","value":[-1,86399,999999]}'),
    (timedelta.min, '{"$ayework":"timedelta","value":[-999999999,0,0]}'),
    (timedelta.max, '{"$ayework":"timedelta","value":[999999999,86399,999999]}'),
    (date(2026, 5, 1), stored("date", "2026-05-01")),
    (time(9, 30), stored("time", "09:30:00")), (time(9, 30, tzinfo=UTC), stored("time", "09:30:00+00:00")),
    (time(9, 30, tzinfo=ODD), stored("time", "09:30:00+05:53:28.000001")),
    (time(9, 30, tzinfo=BARELY_WEST), stored("time", "09:30:00-00:00:00.000001")),
    (time(9, 30, tzinfo=PARIS, fold=1), stored("time", "09:30:00[Europe/Paris][_fold=1]")),
    (time(9, 30, tzinfo=ZoneInfo("UTC")), stored("time", "09:30:00+00:00[UTC]")),
    *((moment, stored("datetime", text)) for moment, text in MOMENTS),
])  # fmt: skip
def test_the_stored_form(value, text):
    assert encode(value) == text
    assert fingerprint(decode(text)) == fingerprint(value)


def test_equal_sets_are_written_alike():
    assert isinstance(RichJSON(), Codec) and not isinstance(json, Codec)
    names = [f"name-{n}" for n in range(50)]
    assert encode(set(names)) == encode({*names[25:]} | {*names[:25]})
    assert decode(encode(set(names))) == set(names)


def test_a_shared_value_is_no_loop_and_a_large_number_comes_back():
    shared = (1,)
    assert decode(encode([shared, shared, {"again": shared}])) == [shared, shared, {"again": shared}]
    assert decode(encode({"n": 10**10_000 + 1})) == {"n": 10**10_000 + 1}


@pytest.mark.parametrize("leaf", [1, (1,)], ids=["plain", "rich"])
def test_a_hundred_levels_are_fine(leaf):
    value = leaf
    for _ in range(99 if leaf == (1,) else 100):
        value = [value]
    assert decode(encode(value)) == value


def test_decimals_do_not_depend_on_the_context_of_the_thread():
    text = encode(Decimal("1.23456789"))
    with localcontext(Context(prec=3, traps=[])):
        assert decode(text).as_tuple() == Decimal("1.23456789").as_tuple()
        with pytest.raises(NotDecodable) as caught:
            decode('{"$ayework":"decimal","value":"a lot"}')
    assert isinstance(caught.value.__cause__, InvalidOperation)


def test_an_offset_that_the_zone_does_not_have_keeps_the_instant_and_a_missing_one_is_looked_up():
    moment = decode(stored("datetime", "2026-05-01T09:00:00+05:00[Europe/Paris]"))
    assert moment == datetime(2026, 5, 1, 4, tzinfo=UTC)
    assert moment.tzinfo is PARIS
    moment = decode(stored("datetime", "2026-05-01T09:00:00[Europe/Paris]"))
    assert moment.isoformat() == "2026-05-01T09:00:00+02:00"
    assert decode(encode(moment)).tzinfo is PARIS


def test_zones_without_a_name_that_can_be_looked_up_are_kept_as_their_offset():
    moment = datetime(2026, 5, 1, 9, tzinfo=Nameless(timedelta(hours=2)))
    assert decode(encode(moment)) == moment
    assert decode(encode(moment)).tzinfo == timezone(timedelta(hours=2))
    for key in (None, "Mars/Olympus", "a key [with] brackets"):
        moment = datetime(2026, 5, 1, 9, tzinfo=ZoneInfo.from_file(BytesIO(TWO_HOURS), key=key))
        assert encode(moment) == stored("datetime", "2026-05-01T09:00:00+02:00")


NO_ZONE = (
    "expected a time zone with a name or an offset, got: Nameless at row['at']; "
    "use a zoneinfo.ZoneInfo or a datetime.timezone"
)
TOO_FINE = (
    "expected a moment in whole microseconds, got: {} at row['at']; "
    "round it, and pass None where a value is missing"
)


@pytest.mark.parametrize(("value", "message"), [
    (time(9, tzinfo=Nameless(None)), NO_ZONE), (datetime(2026, 5, 1, tzinfo=Nameless(None)), NO_ZONE),
    (FineTimestamp(2026, 5, 1), TOO_FINE.format("FineTimestamp")),
    (Missing(2026, 5, 1), TOO_FINE.format("Missing")), (FineDelta(1), TOO_FINE.format("FineDelta")),
])  # fmt: skip
def test_moments_without_an_offset_or_in_nanoseconds_are_refused(value, message):
    with pytest.raises(NotEncodable) as caught:
        encode({"at": value}, "row")
    assert str(caught.value) == message


@pytest.mark.parametrize(("value", "plain"), [
    (Size.SMALL, 1), (Size.HUGE, 2**60), (Access.READ | Access.WRITE, 3), (Ratio.HALF, 0.5),
    (Colour.RED, "red"), (OldColour.RED, "red"), ({OldColour.RED: 1}, {"red": 1}),
    ({OldColour.RED: 1, 2: 2}, {"red": 1, 2: 2}),
    (mark_safe("<b>"), "<b>"), (Shouting("tea"), "tea"), (lazy(str.upper, str)("tea"), "TEA"),
    (Point(1, (2,)), (1, (2,))), (Lines([1]), [1]),
    (OrderedDict(b=1, a=2), {"b": 1, "a": 2}), (defaultdict(list, a=[1]), {"a": [1]}),
    (Counter("aab"), {"a": 2, "b": 1}), (MappingProxyType({1: 2}), {1: 2}), (UserDict(a=1), {"a": 1}),
    (bytearray(b"tea"), b"tea"), (memoryview(b"tea")[::2], b"ta"),
    (Timestamp(2026, 5, 1), datetime(2026, 5, 1)),
])  # fmt: skip
def test_subclasses_and_views_become_the_nearest_plain_type(value, plain):
    assert fingerprint(decode(encode([value]))) == fingerprint([plain])
    assert fingerprint(decode(encode(value))) == fingerprint(plain)
