"""How long a failed work waits before it is tried again."""

import math
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ayework import Retry
from django_ayework.rules.durations import later
from django_ayework.rules.retry import RetryPolicy, backoff
from tests.rules.moments import NOON

FRACTIONS = st.floats(0, 1)
attempts = st.integers(1, 200)
chances = st.floats(0, 1, exclude_max=True)
policies = st.builds(
    RetryPolicy, base=st.floats(0, 1e4), factor=st.floats(0, 50), max=st.floats(0, 1e6), jitter=FRACTIONS
)
retries = st.builds(
    Retry,
    attempts=st.none() | st.integers(1, 99),
    base=st.none() | st.floats(0, 1e6),
    factor=st.none() | st.floats(0, 1e6),
    max=st.none() | st.floats(0, 1e6),
    jitter=st.none() | FRACTIONS,
)
FIELDS = ("attempts", "base", "factor", "max", "jitter")


def test_without_jitter_the_default_waits_double_up_to_thirty_seconds():
    policy = RetryPolicy(jitter=0)

    waits = [backoff(attempt, policy, random=0.7).total_seconds() for attempt in range(1, 7)]

    assert waits == [1, 2, 4, 8, 16, 30]


@pytest.mark.parametrize(
    ("attempt", "policy", "random", "seconds"),
    [
        (1, RetryPolicy(), 1.0, 0.5),  # full jitter takes half of the wait away
        (2, RetryPolicy(), 1.0, 1.0),
        (2, RetryPolicy(), 0.0, 2.0),  # no jitter drawn
        (3, RetryPolicy(base=0.1, factor=2, max=0.15, jitter=0), 0.0, 0.15),
        (1, RetryPolicy(base=60, max=30, jitter=0), 0.0, 30.0),  # the bound holds for the first retry too
        (5, RetryPolicy(base=3, factor=1, jitter=0), 0.0, 3.0),
        (2, RetryPolicy(base=3, factor=0, jitter=0), 0.0, 0.0),
        (9, RetryPolicy(base=0), 0.3, 0.0),
    ],
)
def test_waits_by_example(attempt, policy, random, seconds):
    assert backoff(attempt, policy, random) == timedelta(seconds=seconds)


@given(attempts, policies, chances)
def test_the_wait_follows_the_formula(attempt, policy, random):
    try:
        grown = policy.base * math.pow(policy.factor, attempt - 1)
    except OverflowError:
        grown = math.inf if policy.base else 0
    expected = min(grown, policy.max) * (1 - policy.jitter * random)

    assert backoff(attempt, policy, random).total_seconds() == pytest.approx(expected, rel=1e-9, abs=1e-6)


@given(attempts, policies, chances)
def test_jitter_only_shortens_a_wait_and_by_no_more_than_its_share(attempt, policy, random):
    longest = backoff(attempt, policy, 0.0)
    hair = timedelta(microseconds=2)

    assert timedelta(0) <= backoff(attempt, policy, random) <= longest
    assert longest <= timedelta(seconds=policy.max) + hair
    assert backoff(attempt, policy, random) >= longest * (1 - policy.jitter) - hair


@given(attempts, policies.filter(lambda policy: policy.factor >= 1))
def test_waits_never_shrink_from_one_attempt_to_the_next(attempt, policy):
    assert backoff(attempt, policy, 0.0) <= backoff(attempt + 1, policy, 0.0)


@given(
    st.integers(1, 10**9),
    st.builds(
        Retry,
        base=st.floats(0, allow_infinity=False),
        factor=st.one_of(st.integers(0, 10**9), st.floats(0, allow_infinity=False)),
        max=st.floats(0, allow_infinity=False),
        jitter=FRACTIONS,
    ),
    chances,
)
def test_no_attempt_and_no_policy_is_too_large_to_be_computed(attempt, retry, random):
    wait = backoff(attempt, RetryPolicy.resolve(retry), random)

    assert wait >= timedelta(0)
    assert later(NOON, wait) >= NOON


def test_a_base_of_zero_retries_at_once_however_often_it_failed():
    assert backoff(10_000, RetryPolicy(base=0, factor=2), 0.0) == timedelta(0)


@given(st.lists(st.none() | retries, max_size=4))
def test_policies_merge_field_by_field_the_first_given_winning(levels):
    resolved = RetryPolicy.resolve(*levels)

    for name in FIELDS:
        values = [getattr(level, name) for level in [*levels, RetryPolicy()] if level]
        assert getattr(resolved, name) == next(value for value in values if value is not None)


def test_the_precedence_of_the_specification_by_example():
    queue_time, computed = Retry(jitter=0), Retry(base=22)
    constant, system = Retry(attempts=7, base=11), Retry(attempts=4, factor=9)

    resolved = RetryPolicy.resolve(queue_time, computed, constant, system)

    assert resolved == RetryPolicy(attempts=7, base=22, factor=9, max=30, jitter=0)


def test_the_built_in_policy():
    assert RetryPolicy.resolve() == RetryPolicy(attempts=3, base=1, factor=2, max=30, jitter=0.5)


def test_durations_of_a_policy_may_be_timedeltas():
    retry = Retry(base=timedelta(minutes=1), max=timedelta(hours=1))

    assert (retry.base, retry.max) == (60.0, 3600.0)


@pytest.mark.parametrize("attempts", [0, -1, True, 2.5, math.nan, "3"])
def test_attempts_are_a_whole_number_of_at_least_one(attempts):
    with pytest.raises(ValueError, match="attempts to be a whole number, 1 or more, got: "):
        Retry(attempts=attempts)


@pytest.mark.parametrize("factor", [-1, math.nan, math.inf, "2", True])
def test_a_factor_is_a_number_of_at_least_zero(factor):
    with pytest.raises(ValueError, match="factor to be 0 or more, got: "):
        Retry(factor=factor)


@pytest.mark.parametrize("jitter", [-0.1, 1.1, math.nan, "half", True])
def test_jitter_is_a_share(jitter):
    with pytest.raises(ValueError, match="jitter between 0 and 1, got: "):
        Retry(jitter=jitter)


@pytest.mark.parametrize(("name", "value"), [("base", -1), ("max", math.inf), ("base", math.nan)])
def test_the_durations_of_a_policy_are_finite_and_not_negative(name, value):
    with pytest.raises(ValueError, match=f"Retry's {name} to be 0 seconds or more"):
        Retry(**{name: value})
