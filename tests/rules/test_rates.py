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
limits = st.integers(1, 7)
windows = st.integers(1, 5_000_000).map(lambda number: timedelta(microseconds=number))
#: Pauses between hits, many of them none at all.
pauses = st.lists(st.just(0) | st.integers(0, 6_000_000), max_size=60).map(
    lambda numbers: [timedelta(microseconds=number) for number in numbers]
)
cases = given(limits, windows, pauses)


def after(milliseconds: float) -> datetime:
    return NOON + timedelta(milliseconds=milliseconds)


def moments_of(gaps: list[timedelta]) -> list[datetime]:
    """The moments that these pauses lead to, one after the other."""
    return list(accumulate(gaps, initial=NOON))[1:]


def hits(rate, *milliseconds):
    """Which hits at these moments are allowed."""
    return [bool(rate.hit(after(moment))) for moment in milliseconds]


RATES = [FixedWindow, SlidingWindow, TokenBucket]
rates = st.sampled_from(RATES)
of_every_kind = pytest.mark.parametrize("kind", RATES)


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
    busy, calm = kind(limit, window), kind(limit, window)
    for moment in moments_of(gaps):
        verdict = busy.hit(moment)
        for _ in range(3 if not verdict else 0):
            assert busy.hit(moment) == verdict
        if calm.peek(moment):
            calm.hit(moment)
        assert busy.state == calm.state


@given(rates, limits, windows, pauses)
def test_looking_counts_nothing_and_says_what_a_hit_is_told(kind, limit, window, gaps):
    rate = kind(limit, window)
    for moment in moments_of(gaps):
        before = rate.state
        seen = rate.peek(moment)
        assert rate.state == before
        assert rate.hit(moment) == seen


@given(rates, limits, windows, pauses)
def test_at_first_and_after_its_life_as_many_as_the_limit_are_allowed(kind, limit, window, gaps):
    rate, fresh = kind(limit, window), kind(limit, window)
    moments = [NOON, *moments_of(gaps)]
    for moment in moments:
        rate.hit(moment)
    later = moments[-1] + timedelta(seconds=rate.life)
    assert [bool(rate.hit(later)) for _ in range(limit + 1)] == [True] * limit + [False]
    assert [bool(fresh.hit(NOON)) for _ in range(limit + 1)] == [True] * limit + [False]


@given(rates, limits, windows, st.lists(st.integers(-6_000_000, 6_000_000), max_size=40))
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
def test_moments_before_1970_and_very_long_windows_are_fine(kind):
    long_ago = datetime(1, 1, 1, tzinfo=UTC)
    for window in (timedelta(days=900_000), 1e300):
        rate = kind(1, window)
        assert [bool(rate.hit(long_ago)) for _ in range(2)] == [True, False]


@of_every_kind
@pytest.mark.parametrize("limit", [0, -1, 1.5, True, "3", None])
def test_a_limit_is_a_whole_number_above_zero(kind, limit):
    with pytest.raises(ValueError, match="expected limit to be a whole number, 1 or more, got: "):
        kind(limit, 1)


@of_every_kind
def test_a_window_is_a_duration_above_zero(kind):
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
    with pytest.raises(
        ValueError, match=r"'fixed', 'sliding' or 'token', got: 'tokens'. Did you mean 'token'"
    ):
        algorithm_named("tokens")


def test_a_fixed_window_begins_with_its_first_hit_and_ends_after_its_length():
    rate = FixedWindow(3, 1)
    assert hits(rate, 0, 400, 999, 999.9) == [True, True, True, False]
    assert rate.hit(after(1001)) == Allowed()
    rate = FixedWindow(1, 1)
    rate.hit(after(700))
    assert rate.hit(after(1000)) == Denied(0.7)
    assert rate.hit(after(1699.999)) == Denied(0.000001)
    assert rate.hit(after(1700)) == Allowed()
    assert rate.hit(after(1700)) == Denied(1.0)


@cases
def test_a_fixed_window_allows_a_hit_exactly_while_it_has_room(limit, window, gaps):
    rate, start, count = FixedWindow(limit, window), None, 0
    for moment in moments_of(gaps):
        if start is None or moment >= start + window:
            start, count = moment, 0
        allowed = count < limit
        count += allowed
        assert bool(rate.hit(moment)) == allowed


def test_a_full_sliding_window_fades_out_in_the_next():
    rate = SlidingWindow(10, 1)
    assert all(hits(rate, *range(500, 510)))
    assert hits(rate, 510, 1010, 1990) == [False, False, True]  # 10 · 0.99 + 0 + 1 > 10
    rate = SlidingWindow(3, 1)
    assert hits(rate, 0, 0, 0, 2000, 2000, 2000, 2000) == [True] * 6 + [False]


def test_of_ten_hits_at_once_two_count_and_the_next_is_allowed_half_a_window_on():
    rate = SlidingWindow(2, 1)
    assert hits(rate, *[0] * 10) == [True] * 2 + [False] * 8
    assert rate.hit(after(0)) == Denied(1.5)
    assert rate.hit(after(1499.999)) == Denied(0.000001)
    assert rate.hit(after(1500)) == Allowed()


def test_sliding_windows_are_aligned_to_their_length():
    rate = SlidingWindow(1, 60)
    assert rate.hit(after(59_000))
    assert rate.hit(after(60_000)) == Denied(60.0)  # a full window before lasts through this one
    assert rate.hit(after(120_000)) == Allowed()


@cases
def test_a_hit_is_allowed_exactly_if_the_formula_says_so(limit, window, gaps):
    rate, counts = SlidingWindow(limit, window), {}
    length = rate.window
    for moment in moments_of(gaps):
        index, elapsed = divmod(microseconds(moment), length)
        faded = counts.get(index - 1, 0) * Fraction(length - elapsed, length)
        allowed = faded + counts.get(index, 0) + 1 <= limit
        counts[index] = counts.get(index, 0) + allowed
        assert bool(rate.hit(moment)) == allowed


def test_a_bucket_of_five_a_second_gives_five_and_then_one_every_fifth_of_it():
    rate = TokenBucket(5, 1)
    assert hits(rate, *[0] * 6) == [True] * 5 + [False]
    assert rate.hit(after(0)) == Denied(0.2)
    assert rate.hit(after(200)) == Allowed()
    assert rate.hit(after(200)) == Denied(0.2)


def test_the_wait_is_rounded_up_to_the_next_microsecond():
    rate = TokenBucket(3, 1)
    assert all(hits(rate, 0, 0, 0))
    assert rate.hit(after(0)) == Denied(0.333334)
    assert rate.hit(after(333.333)) == Denied(0.000001)
    assert rate.hit(after(333.334)) == Allowed()


def test_tokens_that_are_there_can_be_had_though_the_clock_steps_back():
    rate = TokenBucket(2, 1)
    rate.hit(after(0))
    assert rate.hit(after(-3_600_000)) == Allowed()
    assert rate.hit(after(0)) == Denied(0.5)


@cases
def test_a_hit_is_refused_only_when_less_than_a_token_is_there(limit, window, gaps):
    rate, level, before = TokenBucket(limit, window), Fraction(limit), None
    for moment in moments_of(gaps):
        elapsed = microseconds(moment) - microseconds(before or moment)
        level, before = min(Fraction(limit), level + Fraction(limit * elapsed, rate.window)), moment
        allowed = level >= 1
        level -= allowed
        assert bool(rate.hit(moment)) == allowed
