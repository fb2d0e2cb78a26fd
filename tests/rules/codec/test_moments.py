from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from io import BytesIO
from struct import pack
from zoneinfo import ZoneInfo

import pytest

from django_ayework.errors import NotDecodable, NotEncodable
from django_ayework.rules.codec import decode, encode
from tests.rules.codec.values import fingerprint

PARIS = ZoneInfo("Europe/Paris")
ODD = timezone(timedelta(hours=5, minutes=53, seconds=28, microseconds=1))
BARELY_WEST = timezone(-timedelta(microseconds=1))


#: A zone file without transitions, two hours ahead of UTC.
TWO_HOURS = b"TZif" + bytes(16) + pack(">6l", 0, 0, 0, 0, 1, 4) + pack(">lbb", 7200, 0, 0) + b"TWO\0"


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

    def __eq__(self, other: object) -> bool:
        return False

    def __ne__(self, other: object) -> bool:
        return True


def stored(tag: str, value: str) -> str:
    return f'{{"$ayework":"{tag}","value":"{value}"}}'


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(2026, 5, 1, 9), "2026-05-01T09:00:00"),
        (datetime(2026, 5, 1, 9, 0, 0, 1, tzinfo=UTC), "2026-05-01T09:00:00.000001+00:00"),
        (datetime(2026, 5, 1, 9, tzinfo=ODD), "2026-05-01T09:00:00+05:53:28.000001"),
        (datetime(2026, 5, 1, 9, tzinfo=ZoneInfo("UTC")), "2026-05-01T09:00:00+00:00[UTC]"),
        (datetime(2026, 5, 1, 9, tzinfo=PARIS), "2026-05-01T09:00:00+02:00[Europe/Paris]"),
        # The hour that comes twice.
        (datetime(2026, 10, 25, 2, 30, tzinfo=PARIS), "2026-10-25T02:30:00+02:00[Europe/Paris]"),
        (
            datetime(2026, 10, 25, 2, 30, tzinfo=PARIS, fold=1),
            "2026-10-25T02:30:00+01:00[Europe/Paris][_fold=1]",
        ),
        # The hour that never comes.
        (datetime(2026, 3, 29, 2, 30, tzinfo=PARIS), "2026-03-29T02:30:00+01:00[Europe/Paris]"),
        (
            datetime(2026, 3, 29, 2, 30, tzinfo=PARIS, fold=1),
            "2026-03-29T02:30:00+02:00[Europe/Paris][_fold=1]",
        ),
        (datetime(2026, 5, 1, 9, fold=1), "2026-05-01T09:00:00[_fold=1]"),
        # An offset nobody has.
        (datetime(2026, 5, 1, 9, tzinfo=BARELY_WEST), "2026-05-01T09:00:00-00:00:00.000001"),
        (datetime.min, "0001-01-01T00:00:00"),
        (datetime.max.replace(tzinfo=PARIS), "9999-12-31T23:59:59.999999+01:00[Europe/Paris]"),
    ],
)
def test_datetimes_are_iso_8601_with_the_name_of_their_zone(moment, text):
    assert encode(moment) == stored("datetime", text)
    assert fingerprint(decode(stored("datetime", text))) == fingerprint(moment)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (time(9, 30), "09:30:00"),
        (time(9, 30, tzinfo=UTC), "09:30:00+00:00"),
        (time(9, 30, tzinfo=ODD), "09:30:00+05:53:28.000001"),
        (time(9, 30, tzinfo=BARELY_WEST), "09:30:00-00:00:00.000001"),
        (time(9, 30, tzinfo=PARIS, fold=1), "09:30:00[Europe/Paris][_fold=1]"),
        (time(9, 30, tzinfo=ZoneInfo("UTC")), "09:30:00+00:00[UTC]"),
    ],
)
def test_times_of_day_keep_their_zone(value, text):
    assert encode(value) == stored("time", text)
    assert fingerprint(decode(stored("time", text))) == fingerprint(value)


def test_a_zone_comes_back_as_the_very_same_object():
    assert decode(encode(datetime(2026, 5, 1, tzinfo=PARIS))).tzinfo is PARIS


def test_a_date_is_no_datetime():
    assert encode(date(2026, 5, 1)) == stored("date", "2026-05-01")
    assert type(decode(encode(date(2026, 5, 1)))) is date


@pytest.mark.parametrize("value", [timedelta.min, timedelta.max, timedelta(microseconds=-1), timedelta(0)])
def test_durations_are_exact(value):
    assert decode(encode(value)) == value


def test_a_duration_is_days_seconds_and_microseconds():
    assert encode(timedelta(days=1, hours=1)) == '{"$ayework":"timedelta","value":[1,3600,0]}'


def test_when_the_rules_of_a_zone_have_changed_the_instant_counts():
    moment = decode(stored("datetime", "2026-05-01T09:00:00+05:00[Europe/Paris]"))
    assert moment == datetime(2026, 5, 1, 4, tzinfo=UTC)
    assert moment.tzinfo is PARIS


def test_a_zone_without_an_offset_is_read_by_the_clock():
    assert (
        decode(stored("datetime", "2026-05-01T09:00:00[Europe/Paris]")).isoformat()
        == "2026-05-01T09:00:00+02:00"
    )


def test_other_zones_are_kept_as_their_offset():
    moment = datetime(2026, 5, 1, 9, tzinfo=Nameless(timedelta(hours=2)))
    assert decode(encode(moment)) == moment
    assert decode(encode(moment)).tzinfo == timezone(timedelta(hours=2))


def test_a_zone_read_from_a_file_is_kept_as_its_offset():
    for key in (None, "Mars/Olympus", "a key [with] brackets"):
        moment = datetime(2026, 5, 1, 9, tzinfo=ZoneInfo.from_file(BytesIO(TWO_HOURS), key=key))
        assert encode(moment) == stored("datetime", "2026-05-01T09:00:00+02:00")


@pytest.mark.parametrize(
    "moment", [time(9, tzinfo=Nameless(None)), datetime(2026, 5, 1, tzinfo=Nameless(None))]
)
def test_a_zone_with_neither_name_nor_offset_is_refused(moment):
    with pytest.raises(NotEncodable) as caught:
        encode([moment], "opening")
    assert str(caught.value) == (
        "expected a time zone with a name or an offset, got: Nameless at opening[0]; "
        "use a zoneinfo.ZoneInfo or a datetime.timezone"
    )


def test_subclasses_become_plain_datetimes():
    assert fingerprint(decode(encode(Timestamp(2026, 5, 1)))) == fingerprint(datetime(2026, 5, 1))


@pytest.mark.parametrize("value", [FineTimestamp(2026, 5, 1), Missing(2026, 5, 1), FineDelta(1)])
def test_what_microseconds_cannot_hold_is_refused(value):
    with pytest.raises(NotEncodable) as caught:
        encode({"at": value}, "row")
    assert str(caught.value) == (
        f"expected a moment in whole microseconds, got: {type(value).__name__} at row['at']; "
        "round it, and pass None where a value is missing"
    )


@pytest.mark.parametrize(
    ("tag", "text"),
    [
        ("datetime", "tomorrow"),
        ("datetime", "2026-05-01T09:00:00[Mars/Olympus]"),
        ("datetime", "2026-05-01T09:00:00[../../etc/passwd]"),
        ("datetime", "2026-05-01T09:00:00[Europe]"),
        ("datetime", "9999-12-31T23:59:59-23:00[Europe/Paris]"),
        ("datetime", ""),
        ("date", "2026-02-30"),
        ("time", "25:00"),
    ],
)
def test_malformed_moments_cannot_be_read(tag, text):
    with pytest.raises(NotDecodable) as caught:
        decode(stored(tag, text))
    assert str(caught.value) == f"expected a stored {tag}, got: {text!r}"


@pytest.mark.parametrize("value", ["5", "[1,2]", "[1,2,3.0]", "[true,0,0]", "[1000000000,0,0]", "null"])
def test_malformed_durations_cannot_be_read(value):
    with pytest.raises(NotDecodable, match="expected a stored timedelta, got: "):
        decode(f'{{"$ayework":"timedelta","value":{value}}}')
