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


OK, TICK = None, 0.000001
#: A rate, the milliseconds of hits, and for each the seconds to wait, or that it is allowed.
EXAMPLES = {
    "fixed, three hits": (FixedWindow(3, 1), [0, 400, 999, 999.9, 1001], [OK, OK, OK, 0.0001, OK]),
    "fixed, from its first hit": (
        *(FixedWindow(1, 1), [700, 1000, 1699.999, 1700, 1700]),
        [OK, 0.7, TICK, OK, 1.0],
    ),
    # At 1 010 milliseconds 10 · 0.99 + 0 + 1 are more than 10.
    "sliding, fading out": (
        *(SlidingWindow(10, 1), [*range(500, 510), 510, 1010, 1990]),
        [*[OK] * 10, 0.59, 0.09, OK],
    ),
    "sliding, after a pause": (SlidingWindow(3, 1), [*[0] * 3, *[2000] * 4], [*[OK] * 6, 1.333334]),
    "sliding, half on": (SlidingWindow(2, 1), [*[0] * 11, 1499.999, 1500], [OK, OK, *[1.5] * 9, TICK, OK]),
    # A full window before lasts through the next one.
    "sliding, aligned": (SlidingWindow(1, 60), [59_000, 60_000, 120_000], [OK, 60.0, OK]),
    "bucket of five": (TokenBucket(5, 1), [*[0] * 7, 200, 200], [*[OK] * 5, 0.2, 0.2, OK, 0.2]),
    "bucket, rounded up": (
        *(TokenBucket(3, 1), [*[0] * 4, 333.333, 333.334]),
        [*[OK] * 3, 0.333334, TICK, OK],
    ),
    "bucket, clock stepping back": (TokenBucket(2, 1), [0, -3_600_000, 0], [OK, OK, 0.5]),
}


@pytest.mark.parametrize(("rate", "moments", "waits"), EXAMPLES.values(), ids=EXAMPLES)
def test_rates_by_example(rate, moments, waits):
    assert [rate.hit(after(moment)) for moment in moments] == [
        Allowed() if wait is OK else Denied(wait) for wait in waits
    ]


@cases
def test_a_fixed_window_allows_a_hit_exactly_while_it_has_room(limit, window, gaps):
    rate, start, count = FixedWindow(limit, window), None, 0
    for moment in moments_of(gaps):
        if start is None or moment >= start + window:
            start, count = moment, 0
        allowed = count < limit
        count += allowed
        assert bool(rate.hit(moment)) == allowed


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


@cases
def test_a_hit_is_refused_only_when_less_than_a_token_is_there(limit, window, gaps):
    rate, level, before = TokenBucket(limit, window), Fraction(limit), None
    for moment in moments_of(gaps):
        elapsed = microseconds(moment) - microseconds(before or moment)
        level, before = min(Fraction(limit), level + Fraction(limit * elapsed, rate.window)), moment
        allowed = level >= 1
        level -= allowed
        assert bool(rate.hit(moment)) == allowed
