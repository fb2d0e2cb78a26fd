"""What holds for every way to count."""

import dataclasses
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ayework.doers import Allowed, Denied, FixedWindow, SlidingWindow, TokenBucket
from django_ayework.rules.rates import ALGORITHMS, algorithm_named
from tests.rules.moments import NOON
from tests.rules.rates.moments import MICROSECOND, after, limits, moments_of, pauses, windows

RATES = [FixedWindow, SlidingWindow, TokenBucket]
rates = st.sampled_from(RATES)


def copy_of(rate):
    copy = type(rate)(rate.limit, timedelta(microseconds=rate.window))
    copy.state = rate.state
    return copy


@given(rates, limits, windows, pauses)
def test_the_wait_is_tight_a_hit_exactly_then_is_allowed_and_none_before(kind, limit, window, gaps):
    rate = kind(limit, window)
    for moment in moments_of(gaps):
        verdict = rate.hit(moment)
        if not verdict:
            free_at = moment + timedelta(seconds=verdict.retry_after)
            assert verdict.retry_after > 0
            assert copy_of(rate).hit(free_at) == Allowed()
            assert copy_of(rate).hit(free_at - MICROSECOND) == Denied(0.000001)


@given(rates, limits, windows, pauses)
def test_a_refused_hit_consumes_nothing(kind, limit, window, gaps):
    hammered, calm = kind(limit, window), kind(limit, window)
    for moment in moments_of(gaps):
        verdict = hammered.hit(moment)
        for _ in range(3 if not verdict else 0):
            assert hammered.hit(moment) == verdict
        if calm.peek(moment):
            calm.hit(moment)
        assert hammered.state == calm.state


@given(rates, limits, windows, pauses)
def test_looking_counts_nothing_and_says_what_a_hit_is_told(kind, limit, window, gaps):
    rate = kind(limit, window)
    for moment in moments_of(gaps):
        before = rate.state
        seen = rate.peek(moment)
        assert rate.state == before
        assert rate.hit(moment) == seen


@given(rates, limits, windows, pauses)
def test_as_many_as_the_limit_are_allowed_at_first(kind, limit, window, gaps):
    rate = kind(limit, window)

    assert [bool(rate.hit(NOON)) for _ in range(limit + 1)] == [True] * limit + [False]


@given(rates, limits, windows, pauses)
def test_after_its_life_a_count_is_as_good_as_none(kind, limit, window, gaps):
    rate = kind(limit, window)
    moments = moments_of(gaps)
    for moment in moments:
        rate.hit(moment)
    later = (moments or [NOON])[-1] + timedelta(seconds=rate.life)

    assert [bool(rate.hit(later)) for _ in range(limit + 1)] == [True] * limit + [False]


@given(rates, limits, windows, st.lists(st.integers(-6_000_000, 6_000_000), max_size=40))
def test_a_clock_that_steps_back_wins_nothing(kind, limit, window, offsets):
    rate, latest = kind(limit, window), None
    for moment in (NOON + timedelta(microseconds=offset) for offset in offsets):
        if latest is not None and moment < latest:
            assert rate.peek(latest) or not rate.peek(moment)
        if rate.hit(moment):
            latest = max(latest or moment, moment)


@pytest.mark.parametrize("kind", RATES)
def test_a_full_count_stays_full_when_the_clock_steps_back(kind):
    rate = kind(2, 1)
    rate.hit(after(500)), rate.hit(after(500))
    verdict = rate.hit(after(-60_000))

    assert verdict.retry_after > 60
    assert copy_of(rate).hit(after(-60_000) + timedelta(seconds=verdict.retry_after)) == Allowed()


@pytest.mark.parametrize("kind", RATES)
def test_a_moment_is_the_same_in_every_zone(kind):
    rate = kind(1, 3600)
    rate.hit(NOON)

    assert rate.hit(NOON.astimezone(timezone(timedelta(hours=9)))) == rate.hit(NOON)


@pytest.mark.parametrize("kind", RATES)
def test_moments_before_1970_and_very_long_windows_are_fine(kind):
    long_ago = datetime(1, 1, 1, tzinfo=UTC)
    for window in (timedelta(days=900_000), 1e300):
        rate = kind(1, window)

        assert [bool(rate.hit(long_ago)) for _ in range(2)] == [True, False]


@pytest.mark.parametrize("kind", RATES)
def test_a_naive_moment_is_refused_and_counts_nothing(kind):
    rate = kind(1, 1)
    with pytest.raises(ValueError, match="aware datetime"):
        rate.hit(datetime(2026, 1, 1))

    assert rate.state is None


@pytest.mark.parametrize("kind", RATES)
@pytest.mark.parametrize("limit", [0, -1, 1.5, True, "3", None])
def test_a_limit_is_a_whole_number_above_zero(kind, limit):
    with pytest.raises(ValueError, match="expected limit to be a whole number, 1 or more, got: "):
        kind(limit, 1)


@pytest.mark.parametrize("kind", RATES)
@pytest.mark.parametrize("window", [0, timedelta(), -1, float("nan"), float("inf")])
def test_a_window_is_longer_than_nothing(kind, window):
    with pytest.raises(ValueError, match=r"expected window to be .*0 seconds"):
        kind(1, window)


@pytest.mark.parametrize("kind", RATES)
def test_a_window_of_another_type_is_refused(kind):
    with pytest.raises(TypeError, match="expected window to be seconds"):
        kind(1, "a minute")


def test_verdicts_are_values():
    assert (Allowed(), Denied(1.5)) == (Allowed(), Denied(1.5))
    assert (bool(Allowed()), bool(Denied(0))) == (True, False)
    with pytest.raises(dataclasses.FrozenInstanceError):
        Denied(1.5).retry_after = 1


def test_a_rate_says_what_it_is():
    assert repr(FixedWindow(3, timedelta(minutes=1))) == "FixedWindow(limit=3, window=60)"


def test_algorithms_have_names():
    assert list(map(algorithm_named, ALGORITHMS)) == RATES
    with pytest.raises(
        ValueError, match=r"'fixed', 'sliding' or 'token', got: 'tokens'. Did you mean 'token'"
    ):
        algorithm_named("tokens")
