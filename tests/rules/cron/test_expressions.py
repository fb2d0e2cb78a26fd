"""Which cron expressions are read, and what is said of others."""

from __future__ import annotations

import pytest

from django_ayework.errors import CronError
from django_ayework.rules.schedules import parse_cron


@pytest.mark.parametrize(
    ("expression", "fields"),
    [
        ("* * * * *", ("*", "*", "*", "*", "*")),
        (" */20  0 1 1 0 ", ("0,20,40", "0", "1", "1", "0")),
        ("1,2,30-40/5,2 * * * *", ("1,2,30,35,40", "*", "*", "*", "*")),
        ("10/20 17-17 * * *", ("10,30,50", "17", "*", "*", "*")),
        ("0 0 1 JAN,jul-Sep Mon", ("0", "0", "1", "1,7,8,9", "1")),
        ("0 0 * * 7", ("0", "0", "*", "*", "0")),
        ("0 0 * * 7,0", ("0", "0", "*", "*", "0")),
        ("0 0 * * 5-7", ("0", "0", "*", "*", "0,5,6")),
        ("0 0 * * 1-7/2", ("0", "0", "*", "*", "0,1,3,5")),
        ("0 0 * * 2/2", ("0", "0", "*", "*", "2,4,6")),
        ("@daily", ("0", "0", "*", "*", "*")),
        ("@Hourly", ("0", "*", "*", "*", "*")),
        ("@annually", ("0", "0", "1", "1", "*")),
    ],
)
def test_what_is_read(expression, fields):
    cron = parse_cron(expression)
    assert cron.fields == fields
    assert str(cron) == expression


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("* * * *", r"expected five fields .* got 4\.$"),
        ("", r"got 0\.$"),
        ("0 * * * * *", r"got 6\. Seconds and years are not supported"),
        ("0 0 * * * * 2026", r"got 7\. Seconds"),
        ("60 * * * *", "expected the minute to be between 0 and 59, got: '60'"),
        ("* 24 * * *", "expected the hour to be between 0 and 23, got: '24'"),
        ("* * 0 * *", "expected the day of the month to be between 1 and 31, got: '0'"),
        ("* * * 13 *", "expected the month to be between 1 and 12, got: '13'"),
        ("* * * * 8", "expected the day of the week to be between 0 and 7, got: '8'"),
        ("* * * febr *", "Did you mean 'feb'"),
        ("5-3 * * * *", "ranges from low to high, got: '5-3'; write 5-59,0-3"),
        ("* * * * fri-mon", "ranges from low to high"),
        ("*/0 * * * *", "minute's step to be 1 or more, got: '0'"),
        ("*/x * * * *", "step to be 1 or more, got: 'x'"),
        ("*-5 * * * *", r"expected the minute to be \*, numbers, ranges"),
        ("1,,2 * * * *", "got: ''"),
        ("* * L * *", "between 1 and 31, got: 'L'"),
        ("* * * * 5#2", "got: '5#2'"),
        ("-1 * * * *", "got: '-1'"),
        ("1.5 * * * *", "got: '1.5'"),
        ("٣ * * * *", "got: '٣'"),
        ("H * * * *", "got: 'H'"),
        ("* * * * * \x00", "got 6"),
        ("@dayly", "is no nickname. Did you mean '@daily'"),
        ("@reboot", "is no nickname"),
        ("0 0 30 2 *", "never happens"),
        ("0 0 31 4,6,9,11 *", "never happens"),
    ],
)
def test_what_is_refused_and_why(expression, message):
    with pytest.raises(CronError, match=message) as refused:
        parse_cron(expression)
    assert isinstance(refused.value, ValueError)


@pytest.mark.parametrize("expression", [None, 5, b"* * * * *", ["*"] * 5])
def test_what_is_no_text_is_refused(expression):
    with pytest.raises(CronError, match="expected a cron expression"):
        parse_cron(expression)
