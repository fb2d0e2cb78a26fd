"""Rate limits: the common contract, then each algorithm."""

import dataclasses
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ayework.doers import Allowed, Denied, FixedWindow, SlidingWindow, TokenBucket
from django_ayework.rules.rates import ALGORITHMS, algorithm_named, microseconds
from tests.rules.moments import NOON

MICROSECOND = timedelta(microseconds=1)
RATES = [FixedWindow, SlidingWindow, TokenBucket]
of_every_kind = pytest.mark.parametrize("kind", RATES)
limits = st.integers(1, 7)
windows = st.integers(1, 5_000_000).map(lambda number: timedelta(microseconds=number))
#: The moments of hits, with pauses between them, many of them none at all.
moments = st.lists(st.just(0) | st.integers(0, 6_000_000), max_size=60).map(
    lambda pauses: [NOON + timedelta(microseconds=since) for since in accumulate(pauses)]
)
cases = given(limits, windows, moments)
cases_of_every_kind = given(st.sampled_from(RATES), limits, windows, moments)


def after(milliseconds: float) -> datetime:
    return NOON + timedelta(milliseconds=milliseconds)


def copy_of(rate):
    copy = type(rate)(rate.limit, timedelta(microseconds=rate.window))
    copy.state = rate.state
    return copy


@cases_of_every_kind
def test_the_wait_is_tight_a_hit_exactly_then_is_allowed_and_none_before(kind, limit, window, moments):
    rate = kind(limit, window)
    for moment in moments:
        verdict = rate.hit(moment)
        if not verdict:
            free_at = moment + timedelta(seconds=verdict.retry_after)
            assert verdict.retry_after > 0
            assert copy_of(rate).hit(free_at) == Allowed()
            assert copy_of(rate).hit(free_at - MICROSECOND) == Denied(0.000001)


@cases_of_every_kind
def test_looking_and_refused_hits_count_nothing_and_looking_tells_the_verdict(kind, limit, window, moments):
    rate = kind(limit, window)
    for moment in moments:
        before = rate.state
        seen = rate.peek(moment)
        assert rate.state == before
        assert rate.hit(moment) == seen
        if not seen:
            assert [rate.hit(moment), rate.hit(moment)] == [seen, seen]
            assert rate.state == before


@cases_of_every_kind
def test_at_first_and_after_its_life_as_many_as_the_limit_are_allowed(kind, limit, window, moments):
    rate, fresh = kind(limit, window), kind(limit, window)
    for moment in [NOON, *moments]:
        rate.hit(moment)
    later = [NOON, *moments][-1] + timedelta(seconds=rate.life)
    assert [bool(rate.hit(later)) for _ in range(limit + 1)] == [True] * limit + [False]
    assert [bool(fresh.hit(NOON)) for _ in range(limit + 1)] == [True] * limit + [False]


@given(st.sampled_from(RATES), limits, windows, st.lists(st.integers(-6_000_000, 6_000_000), max_size=40))
def test_a_clock_that_steps_back_wins_nothing(kind, limit, window, offsets):
    rate, latest = kind(limit, window), None
    for moment in (NOON + timedelta(microseconds=offset) for offset in offsets):
        if latest is not None and moment < latest:
            assert rate.peek(latest) or not rate.peek(moment)
        if rate.hit(moment):
            latest = max(latest or moment, moment)


@of_every_kind
def test_a_full_count_stays_full_when_the_clock_steps_back(kind):
    rate = kind(2, 1)
    rate.hit(after(500)), rate.hit(after(500))
    verdict = rate.hit(after(-60_000))
    assert verdict.retry_after > 60
    assert copy_of(rate).hit(after(-60_000) + timedelta(seconds=verdict.retry_after)) == Allowed()


@of_every_kind
def test_a_moment_is_the_same_in_every_zone_and_a_naive_one_is_refused(kind):
    rate = kind(1, 3600)
    with pytest.raises(ValueError, match="aware datetime"):
        rate.hit(datetime(2026, 1, 1))
    assert rate.state is None
    rate.hit(NOON)
    assert rate.hit(NOON.astimezone(timezone(timedelta(hours=9)))) == rate.hit(NOON)


@of_every_kind
def test_moments_before_1970_and_very_long_or_short_windows_are_fine(kind):
    long_ago = datetime(1, 1, 1, tzinfo=UTC)
    for window in (timedelta(days=900_000), 1e300, 1e-9):
        rate = kind(1, window)
        assert [bool(rate.hit(long_ago)) for _ in range(2)] == [True, False]


@of_every_kind
def test_a_limit_is_a_whole_number_and_a_window_a_duration_above_zero(kind):
    for limit in (0, -1, 1.5, True, "3", None):
        with pytest.raises(ValueError, match="expected limit to be a whole number, 1 or more, got: "):
            kind(limit, 1)
    for window in (0, timedelta(), -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=r"expected window to be .*0 seconds"):
            kind(1, window)
    with pytest.raises(TypeError, match="expected window to be seconds"):
        kind(1, "a minute")


def test_verdicts_and_rates_are_values_with_names():
    assert (Allowed(), Denied(1.5)) == (Allowed(), Denied(1.5))
    assert (bool(Allowed()), bool(Denied(0))) == (True, False)
    with pytest.raises(dataclasses.FrozenInstanceError):
        Denied(1.5).retry_after = 1
    assert repr(FixedWindow(3, timedelta(minutes=1))) == "FixedWindow(limit=3, window=60)"
    assert list(map(algorithm_named, ALGORITHMS)) == RATES
    message = r"'fixed', 'sliding' or 'token', got: 'tokens'. Did you mean 'token'"
    with pytest.raises(ValueError, match=message):
        algorithm_named("tokens")


@cases
def test_a_fixed_window_allows_a_hit_exactly_while_it_has_room(limit, window, moments):
    rate, start, count = FixedWindow(limit, window), None, 0
    for moment in moments:
        if start is None or moment >= start + window:
            start, count = moment, 0
        allowed = count < limit
        count += allowed
        assert bool(rate.hit(moment)) == allowed


@cases
def test_a_hit_is_allowed_exactly_if_the_formula_says_so(limit, window, moments):
    rate, counts = SlidingWindow(limit, window), {}
    length = rate.window
    for moment in moments:
        index, elapsed = divmod(microseconds(moment), length)
        faded = counts.get(index - 1, 0) * Fraction(length - elapsed, length)
        allowed = faded + counts.get(index, 0) + 1 <= limit
        counts[index] = counts.get(index, 0) + allowed
        assert bool(rate.hit(moment)) == allowed


@cases
def test_a_hit_is_refused_only_when_less_than_a_token_is_there(limit, window, moments):
    rate, level, before = TokenBucket(limit, window), Fraction(limit), None
    for moment in moments:
        elapsed = microseconds(moment) - microseconds(before or moment)
        level, before = min(Fraction(limit), level + Fraction(limit * elapsed, rate.window)), moment
        allowed = level >= 1
        level -= allowed
        assert bool(rate.hit(moment)) == allowed
