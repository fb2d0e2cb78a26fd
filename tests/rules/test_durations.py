"""Durations and moments as users write them."""

import math
from datetime import date, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from django_ayework.rules.durations import later, require_aware, seconds
from tests.rules.moments import NOON, moments


@given(st.floats(0, allow_infinity=False) | st.integers(0, 10**300) | st.timedeltas(min_value=timedelta(0)))
def test_a_number_and_a_timedelta_are_seconds(given):
    read = seconds(given, "delay")
    assert type(read) is float
    assert read == (given.total_seconds() if isinstance(given, timedelta) else float(given))


@pytest.mark.parametrize("value", [-1, -0.001, timedelta(seconds=-1), math.nan, math.inf, -math.inf, 10**400])
def test_a_negative_or_endless_duration_is_refused(value):
    with pytest.raises(ValueError, match="expected delay to be 0 seconds or more, got: "):
        seconds(value, "delay")


@pytest.mark.parametrize("value", ["5", None, True, Decimal(5), [5], NOON])
def test_other_types_are_no_durations(value):
    with pytest.raises(TypeError, match=rf"expected lease to be seconds .* \({type(value).__name__}\)"):
        seconds(value, "lease")


@given(moments)
def test_an_aware_moment_passes_unchanged(moment):
    assert require_aware(moment, "run_at") is moment


@pytest.mark.parametrize("value", ["2026-01-01", 5, date(2026, 1, 1), timedelta(1), None])
def test_what_is_no_aware_moment_is_refused(value):
    with pytest.raises(TypeError, match=rf"expected deadline to be an aware .* \({type(value).__name__}\)"):
        require_aware(value, "deadline")
    with pytest.raises(ValueError, match=r"expected run_at .* the naive .*; use django\.utils\.timezone"):
        require_aware(datetime(2026, 1, 1), "run_at")


@given(moments, st.floats(0, 1e9))
def test_later_adds_seconds(moment, wait):
    assert later(moment, wait) == moment + timedelta(seconds=wait)
    assert later(moment, timedelta(seconds=wait)) == moment + timedelta(seconds=wait)


@given(moments, st.floats(3e11, allow_infinity=False) | st.just(timedelta.max))
@example(NOON, 1e308)
def test_later_than_every_calendar_is_the_last_day(moment, wait):
    assert later(moment, wait) == datetime(9999, 12, 31, tzinfo=moment.tzinfo)
