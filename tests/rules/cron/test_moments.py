"""The moments an expression names: always strictly later, in every zone, on every night."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_ayework.errors import CronError
from django_ayework.rules.schedules import next_after, parse_cron

ZONES = ["America/New_York", "Europe/London", "Australia/Lord_Howe", "Asia/Kathmandu", "UTC"]
EXPRESSIONS = ["*/7 * * * *", "30 2 * * *", "30 1 * * *", "0 0 29 2 *", "0 0 15 * 1"]
YEARS = timedelta(days=731)
#: Around both clock changes of 2026: (zone, an hour before the spring gap, an hour before the autumn fold).
NIGHTS = [
    ("America/New_York", datetime(2026, 3, 8, 6, tzinfo=UTC), datetime(2026, 11, 1, 4, tzinfo=UTC)),
    ("Europe/London", datetime(2026, 3, 29, 0, tzinfo=UTC), datetime(2026, 10, 25, 0, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 10, 3, 14, 30, tzinfo=UTC), datetime(2026, 4, 4, 14, tzinfo=UTC)),
]


def at(zone: str, *parts: int, fold: int = 0) -> datetime:
    return datetime(*parts, tzinfo=ZoneInfo(zone), fold=fold)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.parametrize("dst", ["skip", "shift"])
def test_moments_strictly_increase_for_two_years(zone, expression, dst):
    cron = parse_cron(expression)
    moment = at(zone, 2026, 1, 1)
    end = moment + (YEARS if expression != "*/7 * * * *" else timedelta(days=9))
    while moment < end:
        following = next_after(cron, moment, zone, dst)
        assert following.astimezone(UTC) > moment.astimezone(UTC)
        moment = following


@pytest.mark.parametrize(("zone", "spring", "autumn"), NIGHTS)
@pytest.mark.parametrize("dst", ["skip", "shift"])
@pytest.mark.parametrize("expression", ["* * * * *", "*/7 * * * *", "30 2 * * *", "30 1 * * *", "15 2 * * 0"])
def test_on_both_nights_every_minute_and_second_has_a_later_moment(zone, spring, autumn, dst, expression):
    cron = parse_cron(expression)
    for start in (spring, autumn):
        for minute in range(0, 300):
            asked = start + timedelta(minutes=minute, seconds=(minute * 7) % 60)
            assert next_after(cron, asked, zone, dst) > asked


@pytest.mark.parametrize(("zone", "spring", "autumn"), NIGHTS)
def test_a_repeated_hour_happens_once(zone, spring, autumn):
    seen = []
    moment = autumn
    while moment < autumn + timedelta(hours=4):
        moment = next_after("* * * * *", moment, zone)
        seen.append(moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None))
    assert len(seen) == len(set(seen))


def test_a_time_that_a_clock_change_leaves_out_is_skipped_or_shifted_to_the_end_of_the_gap():
    asked = at("America/New_York", 2026, 3, 8, 0)
    assert next_after("30 2 * * *", asked) == at("America/New_York", 2026, 3, 9, 2, 30)
    assert next_after("30 2 * * *", asked, dst="shift") == at("America/New_York", 2026, 3, 8, 3)
    shifted = [next_after("*/20 2 * * *", asked, dst="shift")]
    shifted.append(next_after("*/20 2 * * *", shifted[0], dst="shift"))
    assert shifted == [at("America/New_York", 2026, 3, 8, 3), at("America/New_York", 2026, 3, 9, 2)]
    gap = at("Australia/Lord_Howe", 2026, 10, 4, 1)
    assert next_after("15 2 * * *", gap, dst="shift") == at("Australia/Lord_Howe", 2026, 10, 4, 2, 30)


def test_a_day_that_a_zone_left_out_is_skipped():
    asked = at("Pacific/Apia", 2011, 12, 29, 12)  # the 30th never came
    assert next_after("0 9 * * *", asked) == at("Pacific/Apia", 2011, 12, 31, 9)
    assert next_after("0 9 * * *", asked, dst="shift") == at("Pacific/Apia", 2011, 12, 31, 0)


def test_of_a_repeated_time_the_first_counts():
    first = at("America/New_York", 2026, 11, 1, 1, 30)
    assert next_after("30 1 * * *", at("America/New_York", 2026, 11, 1, 0)) == first
    assert next_after("30 1 * * *", first) == at("America/New_York", 2026, 11, 2, 1, 30)
    again = at("America/New_York", 2026, 11, 1, 1, 10, fold=1)
    assert next_after("30 1 * * *", again) == at("America/New_York", 2026, 11, 2, 1, 30)


@pytest.mark.parametrize(
    ("expression", "asked", "expected"),
    [
        ("* * * * *", (10, 0, 30), (10, 1)),
        ("*/15 * * * *", (10, 7), (10, 15)),
        ("30 14 * * *", (10, 0), (14, 30)),
        ("0 10 * * *", (9, 59, 59, 999999), (10, 0)),
    ],
)
def test_the_next_moment_of_a_day(expression, asked, expected):
    assert next_after(expression, datetime(2026, 5, 5, *asked, tzinfo=UTC)) == datetime(
        2026, 5, 5, *expected, tzinfo=UTC
    )


def test_either_day_will_do_when_both_are_restricted():
    asked = datetime(2026, 6, 1, 1, tzinfo=UTC)  # a Monday
    assert next_after("0 0 15 * 1", asked) == datetime(2026, 6, 8, tzinfo=UTC)
    assert next_after("0 0 3 * 1", asked) == datetime(2026, 6, 3, tzinfo=UTC)
    assert next_after("0 0 * * 7", asked) == datetime(2026, 6, 7, tzinfo=UTC)


def test_the_moment_is_told_in_the_zone_asked_for():
    asked = datetime(2026, 6, 1, tzinfo=UTC)
    assert str(next_after("0 3 * * *", asked, "Asia/Kathmandu")) == "2026-06-02 03:00:00+05:45"
    assert next_after("0 3 * * *", asked, ZoneInfo("Asia/Kathmandu")).tzinfo == ZoneInfo("Asia/Kathmandu")
    assert next_after("0 3 * * *", asked) == datetime(2026, 6, 1, 3, tzinfo=UTC)


def test_what_cannot_be_used_is_refused():
    asked = datetime(2026, 6, 1, tzinfo=UTC)
    with pytest.raises(CronError, match="expected a time zone such as 'Europe/Paris', got: 'Europe/Pari'"):
        next_after("0 3 * * *", asked, "Europe/Pari")
    with pytest.raises(CronError, match=r"got: '\.\./etc/passwd'"):
        next_after("0 3 * * *", asked, "../etc/passwd")
    with pytest.raises(CronError, match="expected dst to be 'skip' or 'shift', got: 'later'"):
        next_after("0 3 * * *", asked, dst="later")
    with pytest.raises(ValueError, match="moment"):
        next_after("0 3 * * *", datetime(2026, 6, 1))


numbers = {"minute": (0, 59), "hour": (0, 23), "day": (1, 28), "month": (1, 12), "weekday": (0, 7)}


@st.composite
def expressions(draw) -> str:
    parts = []
    for low, high in numbers.values():
        first = draw(st.integers(low, high))
        last = draw(st.integers(first, high))
        step = draw(st.integers(1, 12))
        parts.append(
            draw(st.sampled_from(["*", f"{first}", f"{first}-{last}", f"*/{step}", f"{first}-{last}/{step}"]))
        )
    return " ".join(parts)


@settings(max_examples=300, deadline=None)
@given(
    expressions(),
    st.sampled_from([*ZONES, "Africa/Casablanca", "Pacific/Chatham", "America/Sao_Paulo"]),
    st.datetimes(datetime(2000, 1, 1), datetime(2036, 1, 1)),
    st.sampled_from(["skip", "shift"]),
)
def test_a_moment_is_strictly_later_and_matches_the_expression(expression, zone, wall, dst):
    asked = wall.replace(tzinfo=UTC)
    found = next_after(expression, asked, zone, dst)
    assert found > asked
    assert (found.second, found.microsecond) == (0, 0)
    if dst == "skip":
        cron = parse_cron(expression)
        minute, hour, day, month, weekday = (matching(part) for part in cron.fields)
        assert found.minute in minute
        assert found.hour in hour
        assert found.month in month
        days = [found.day in day, (found.weekday() + 1) % 7 in weekday]
        assert any(days) if "*" not in cron.fields[2::2] else all(days)


class Everything:
    """What ``*`` stands for."""

    def __contains__(self, number: object) -> bool:
        return True


def matching(field: str) -> set[int] | Everything:
    """The numbers of a field."""
    return Everything() if field == "*" else set(map(int, field.split(",")))
