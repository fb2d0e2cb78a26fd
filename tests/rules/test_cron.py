"""Cron expressions, and the moments that they name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_ayework.errors import CronError
from django_ayework.rules.schedules import next_after, parse_cron


@pytest.mark.parametrize(("expression", "fields"), [
    ("* * * * *", "* * * * *"), (" */20  0 1 1 0 ", "0,20,40 0 1 1 0"),
    ("1,2,30-40/5,2 * * * *", "1,2,30,35,40 * * * *"), ("10/20 17-17 * * *", "10,30,50 17 * * *"),
    ("*/60 */24 */31 */12 *", "0 0 1 1 *"),
    ("0 0 1 JAN,jul-Sep Mon", "0 0 1 1,7,8,9 1"), ("0 0 * * 7", "0 0 * * 0"), ("0 0 * * 7,0", "0 0 * * 0"),
    ("0 0 * * 5-7", "0 0 * * 0,5,6"), ("0 0 * * 1-7/2", "0 0 * * 0,1,3,5"), ("0 0 * * 2/2", "0 0 * * 2,4,6"),
    ("@daily", "0 0 * * *"), ("@Hourly", "0 * * * *"), ("@annually", "0 0 1 1 *"),
])  # fmt: skip
def test_an_expression_is_read_as_five_fields(expression, fields):
    cron = parse_cron(expression)
    assert cron.fields == tuple(fields.split())
    assert str(cron) == expression


@pytest.mark.parametrize(("expression", "message"), [
    ("* * * *", r"expected five fields .* got 4\.(\n|$)"), ("", r"got 0\.(\n|$)"),
    ("0 * * * * *", r"got 6\. Seconds and years are not supported"), ("0 0 * * * * 2026", r"got 7\. Seconds"),
    ("60 * * * *", "expected the minute to be between 0 and 59, got: '60'"),
    ("* 24 * * *", "expected the hour to be between 0 and 23, got: '24'"),
    ("* * 0 * *", "expected the day of the month to be between 1 and 31, got: '0'"),
    ("* * * 13 *", "expected the month to be between 1 and 12, got: '13'"),
    ("* * * * 8", "expected the day of the week to be between 0 and 7, got: '8'"),
    ("* * * febr *", "Did you mean 'feb'"),
    ("5-3 * * * *", "ranges from low to high, got: '5-3'; write 5-59,0-3"),
    ("* * * * fri-mon", "ranges from low to high"),
    ("*/0 * * * *", "minute's step to be between 1 and 60, got: '0'. For other intervals, write every="),
    ("*/x * * * *", "step to be between 1 and 60, got: 'x'"), ("*/90 * * * *", "got: '90'"),
    ("* 8/25 * * *", "hour's step to be between 1 and 24"), ("* * */32 * */7", "between 1 and 31, got: '32'"),
    ("* * * * */8", "between 1 and 7, got: '8'"),
    (f"{'9' * 5000} * * * *", r"expected the minute to be \*, numbers"),
    ("*-5 * * * *", r"expected the minute to be \*, numbers, ranges"),
    ("* * L * *", "between 1 and 31, got: 'L'"), ("* * * * 5#2", "got: '5#2'"), ("1,,2 * * * *", "got: ''"),
    *((f"{minute} * * * *", f"got: '{minute}'") for minute in ("-1", "1.5", "٣", "H")),
    ("* * * * * \x00", "got 6"),
    ("@dayly", "is no nickname. Did you mean '@daily'"), ("@reboot", "is no nickname"),
    ("0 0 30 2 *", "never happens"), ("0 0 31 4,6,9,11 *", "never happens"),
    *((wrong, "expected a cron expression") for wrong in (None, 5, b"* * * * *", ["*"] * 5)),
])  # fmt: skip
def test_what_is_refused_and_why(expression, message):
    with pytest.raises(CronError, match=message) as refused:
        parse_cron(expression)
    assert isinstance(refused.value, ValueError)


ZONES = ["America/New_York", "Europe/London", "Australia/Lord_Howe", "Asia/Kathmandu", "UTC"]
#: Around both clock changes of 2026: (zone, an hour before the spring gap, an hour before the autumn fold).
NIGHTS = [
    ("America/New_York", datetime(2026, 3, 8, 6, tzinfo=UTC), datetime(2026, 11, 1, 4, tzinfo=UTC)),
    ("Europe/London", datetime(2026, 3, 29, 0, tzinfo=UTC), datetime(2026, 10, 25, 0, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 10, 3, 14, 30, tzinfo=UTC), datetime(2026, 4, 4, 14, tzinfo=UTC)),
]


@pytest.mark.parametrize(("zone", "spring", "autumn"), NIGHTS)
@pytest.mark.parametrize("dst", ["skip", "shift"])
@pytest.mark.parametrize("expression", ["* * * * *", "*/7 * * * *", "30 2 * * *", "30 1 * * *", "15 2 * * 0"])
def test_on_both_nights_a_moment_has_a_later_one(zone, spring, autumn, dst, expression):
    cron = parse_cron(expression)
    for start in (spring, autumn):
        for minute in range(0, 200, 5):
            asked = start + timedelta(minutes=minute, seconds=(minute * 7) % 60)
            assert next_after(cron, asked, zone, dst) > asked


@pytest.mark.parametrize(("zone", "spring", "autumn"), NIGHTS)
def test_a_repeated_hour_happens_once(zone, spring, autumn):
    seen, moment = [], autumn
    while moment < autumn + timedelta(hours=4):
        moment = next_after("* * * * *", moment, zone)
        seen.append(moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None))
    assert len(seen) == len(set(seen))


NEW_YORK, LORD_HOWE, APIA = (ZoneInfo(name) for name in (*ZONES[:3:2], "Pacific/Apia"))


@pytest.mark.parametrize(("zone", "expression", "asked", "skip", "shift"), [
    # A time that a clock change leaves out is skipped, or shifted to the end of the gap.
    (NEW_YORK, "30 2 * * *", (2026, 3, 8, 0), (2026, 3, 9, 2, 30), (2026, 3, 8, 3)),
    (NEW_YORK, "*/20 2 * * *", (2026, 3, 8, 0), (2026, 3, 9, 2), (2026, 3, 8, 3)),
    (NEW_YORK, "*/20 2 * * *", (2026, 3, 8, 3), (2026, 3, 9, 2), (2026, 3, 9, 2)),
    (LORD_HOWE, "15 2 * * *", (2026, 10, 4, 1), (2026, 10, 5, 2, 15), (2026, 10, 4, 2, 30)),
    (APIA, "0 9 * * *", (2011, 12, 29, 12), (2011, 12, 31, 9), (2011, 12, 31, 0)),  # the 30th never came
    # Of a time that is repeated, the first counts.
    (NEW_YORK, "30 1 * * *", (2026, 11, 1, 0), (2026, 11, 1, 1, 30), (2026, 11, 1, 1, 30)),
    (NEW_YORK, "30 1 * * *", (2026, 11, 1, 1, 30), (2026, 11, 2, 1, 30), (2026, 11, 2, 1, 30)),
])  # fmt: skip
def test_the_next_moment_on_days_of_a_clock_change(zone, expression, asked, skip, shift):
    asked = datetime(*asked, tzinfo=zone)
    assert next_after(expression, asked) == datetime(*skip, tzinfo=zone)
    assert next_after(expression, asked, dst="shift") == datetime(*shift, tzinfo=zone)


def test_of_a_repeated_time_the_second_is_past():
    again = datetime(2026, 11, 1, 1, 10, tzinfo=NEW_YORK, fold=1)
    assert next_after("30 1 * * *", again) == datetime(2026, 11, 2, 1, 30, tzinfo=NEW_YORK)


@pytest.mark.parametrize(("expression", "asked", "expected"), [
    ("* * * * *", (5, 5, 10, 0, 30), (5, 5, 10, 1)), ("*/15 * * * *", (5, 5, 10, 7), (5, 5, 10, 15)),
    ("30 14 * * *", (5, 5, 10, 0), (5, 5, 14, 30)), ("0 10 * * *", (5, 5, 9, 59, 59, 999999), (5, 5, 10, 0)),
    # Either day will do when both are restricted; 1 June is a Monday.
    ("0 0 15 * 1", (6, 1, 1), (6, 8)), ("0 0 3 * 1", (6, 1, 1), (6, 3)), ("0 0 * * 7", (6, 1, 1), (6, 7)),
])  # fmt: skip
def test_the_next_moment_in_utc(expression, asked, expected):
    found = next_after(expression, datetime(2026, *asked, tzinfo=UTC))
    assert found == datetime(2026, *expected, tzinfo=UTC)


JUNE = datetime(2026, 6, 1, tzinfo=UTC)


def test_the_next_moment_is_in_the_zone_asked_for():
    assert str(next_after("0 3 * * *", JUNE, "Asia/Kathmandu")) == "2026-06-02 03:00:00+05:45"
    assert next_after("0 3 * * *", JUNE, ZoneInfo("Asia/Kathmandu")).tzinfo == ZoneInfo("Asia/Kathmandu")
    assert next_after("0 3 * * *", JUNE) == datetime(2026, 6, 1, 3, tzinfo=UTC)


@pytest.mark.parametrize(("moment", "options", "message"), [
    (JUNE, {"tz": "Europe/Pari"}, r"time zone such as .*, got: 'Europe/Pari'. Did you mean 'Europe/Paris'\?"),
    (JUNE, {"tz": "../etc/passwd"}, r"got: '\.\./etc/passwd'"),
    (JUNE, {"dst": "later"}, "expected dst to be 'skip' or 'shift', got: 'later'"),
    (datetime(2026, 6, 1), {}, "moment"),
])  # fmt: skip
def test_what_cannot_be_used_is_refused(moment, options, message):
    with pytest.raises(CronError if options else ValueError, match=message):
        next_after("0 3 * * *", moment, **options)


@st.composite
def expressions(draw) -> str:
    parts = []
    for low, high in ((0, 59), (0, 23), (1, 28), (1, 12), (0, 7)):
        first = draw(st.integers(low, high))
        span, step = f"{first}-{draw(st.integers(first, high))}", draw(st.integers(1, min(high, 12)))
        parts.append(draw(st.sampled_from(["*", f"{first}", span, f"*/{step}", f"{span}/{step}"])))
    return " ".join(parts)


@settings(max_examples=100, deadline=None)
@given(
    expressions(),
    st.sampled_from([*ZONES, "Africa/Casablanca", "Pacific/Chatham", "America/Sao_Paulo"]),
    st.datetimes(datetime(2000, 1, 1), datetime(2036, 1, 1), timezones=st.just(UTC)),
    st.sampled_from(["skip", "shift"]),
)
def test_a_moment_is_strictly_later_and_matches_the_expression(expression, zone, asked, dst):
    found = next_after(expression, asked, zone, dst)
    assert found > asked
    assert (found.second, found.microsecond) == (0, 0)
    if dst == "skip":
        cron = parse_cron(expression)
        minute, hour, day, month, weekday = (matching(part) for part in cron.fields)
        assert found.minute in minute and found.hour in hour and found.month in month
        days = [found.day in day, (found.weekday() + 1) % 7 in weekday]
        assert any(days) if "*" not in cron.fields[2::2] else all(days)


def matching(field: str) -> set[int] | range:
    """The numbers of a field."""
    return range(60) if field == "*" else set(map(int, field.split(",")))
