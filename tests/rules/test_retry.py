"""What follows from a failed attempt: the wait, the decision, the deadline."""

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ayework import Abort, Defer, Reschedule, Retry
from django_ayework.rules.durations import later
from django_ayework.rules.retry import (
    RetryInput,
    RetryPolicy,
    backoff,
    decide_failure,
    decide_lost,
    expire,
    has_expired,
)
from django_ayework.rules.states import Outcome, Reason, Status
from tests.rules.moments import NOON, moments

FRACTIONS = st.floats(0, 1)
attempts = st.integers(1, 200)
chances = st.floats(0, 1, exclude_max=True)
policies = st.builds(
    RetryPolicy, base=st.floats(0, 1e4), factor=st.floats(0, 50), max=st.floats(0, 1e6), jitter=FRACTIONS
)
numbers = st.none() | st.floats(0, 1e6)
retries = st.builds(
    Retry,
    attempts=st.none() | st.integers(1, 99),
    base=numbers,
    factor=numbers,
    max=numbers,
    jitter=st.none() | FRACTIONS,
)
FIELDS = ("attempts", "base", "factor", "max", "jitter")


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
        (10_000, RetryPolicy(base=0, factor=2), 0.0, 0.0),
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


@given(st.lists(st.none() | retries, max_size=4))
def test_policies_merge_field_by_field_the_first_given_winning(levels):
    resolved = RetryPolicy.resolve(*levels)
    for name in FIELDS:
        values = [getattr(level, name) for level in [*levels, RetryPolicy()] if level]
        assert getattr(resolved, name) == next(value for value in values if value is not None)


@pytest.mark.parametrize(
    ("field", "values", "message"),
    [
        ("attempts", [0, -1, True, 2.5, math.nan, "3"], "attempts to be a whole number, 1 or more, got: "),
        ("factor", [-1, math.nan, math.inf, "2", True], "factor to be 0 or more, got: "),
        ("jitter", [-0.1, 1.1, math.nan, "half", True], "jitter between 0 and 1, got: "),
        ("base", [-1, math.nan], "Retry's base to be 0 seconds or more"),
        ("max", [math.inf], "Retry's max to be 0 seconds or more"),
    ],
)
def test_a_field_of_a_policy_that_cannot_be_used_is_refused(field, values, message):
    for value in values:
        with pytest.raises(ValueError, match=message):
            Retry(**{field: value})


FIRST = RetryInput(attempt=1, policy=RetryPolicy(jitter=0), deadline=None, now=NOON, random=0.0)
LAST = replace(FIRST, attempt=3)
ERROR = ValueError("no")
TEN = timedelta(seconds=10)
MICROSECOND = timedelta(microseconds=1)


@pytest.mark.parametrize("advice", [None, "abort", "retry", Defer(delay=99), Abort(), Reschedule(delay=99)])
@pytest.mark.parametrize(
    ("raised", "outcome", "run_at", "reason"),
    [
        (Defer(delay=10), Outcome.DEFERRED, NOON + TEN, None),
        (Reschedule(delay=10), Outcome.FAILED, NOON + TEN, None),
        (Abort("no card"), Outcome.DIED, None, Reason.ABORTED),
    ],
    ids=["Defer", "Reschedule", "Abort"],
)
def test_an_instruction_that_the_handler_raised_wins_over_all_advice(raised, outcome, run_at, reason, advice):
    verdict = decide_failure(raised, advice, FIRST)
    assert (verdict.outcome, verdict.run_at, verdict.reason) == (outcome, run_at, reason)
    assert verdict.status is (Status.DEAD if reason else Status.SCHEDULED)


@pytest.mark.parametrize(
    ("instruction", "run_at"),
    [
        (Defer(delay=10), NOON + TEN),
        (Defer(delay=timedelta(seconds=10)), NOON + TEN),
        (Defer(run_at=NOON + TEN), NOON + TEN),
        (Defer(run_at=NOON - TEN), NOON),  # the past means now
        (Defer(run_at=NOON), NOON),
        (Defer(delay=0), NOON),
        (Reschedule(run_at=NOON - TEN), NOON),
        (Defer(delay=1e300), datetime(9999, 12, 31, tzinfo=UTC)),  # beyond every calendar
    ],
)
def test_when_a_deferred_work_is_due(instruction, run_at):
    verdict = decide_failure(instruction, None, FIRST)
    assert (verdict.status is Status.PENDING, verdict.run_at) == (run_at == NOON, run_at)


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        (None, "Reschedule: Rescheduled by its handler."),
        ("rate limit", "rate limit"),
        (OSError("busy"), "OSError: busy"),
    ],
)
def test_a_rescheduling_uses_an_attempt_and_records_its_cause(cause, text):
    first, last = (decide_failure(Reschedule(delay=10, cause=cause), None, facts) for facts in (FIRST, LAST))
    assert (first.counts, first.error) == (True, text)
    assert (last.reason, last.error) == (Reason.EXHAUSTED, text)


def test_a_rescheduling_past_the_deadline_expires():
    retry_input = replace(FIRST, deadline=NOON + TEN)
    assert decide_failure(Reschedule(run_at=NOON + TEN), None, retry_input).outcome is Outcome.FAILED
    assert (
        decide_failure(Reschedule(run_at=NOON + TEN + MICROSECOND), None, retry_input).reason
        is Reason.EXPIRED
    )
    overdue = replace(FIRST, deadline=NOON - MICROSECOND)
    assert decide_failure(Reschedule(run_at=NOON - TEN), None, overdue).reason is Reason.EXPIRED


@pytest.mark.parametrize("word", [Defer, Reschedule])
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"run_at": datetime(2026, 1, 1)}, ValueError, r"expected {}\(run_at=\) .* got the naive"),
        ({"delay": -5}, ValueError, r"expected {}\(delay=\) to be 0 seconds or more"),
        ({"delay": "soon"}, TypeError, r"expected {}\(delay=\) to be seconds"),
        ({}, TypeError, "{} expects exactly one of delay= .* and run_at="),
        ({"delay": 1, "run_at": NOON}, TypeError, "{} expects exactly one of delay= .* and run_at="),
        ({"countdown": 5}, TypeError, r"{} with arguments of these names: .* got: countdown=5\."),
    ],
)
def test_an_instruction_without_one_usable_moment_is_refused_by_name(word, arguments, error, message):
    with pytest.raises(error, match=message.format(word.__name__)):
        decide_failure(word(**arguments), None, FIRST)


@pytest.mark.parametrize(("word", "names"), [(Defer, "delay, run_at"), (Reschedule, "delay, run_at, cause")])
def test_a_moment_without_its_name_is_refused_with_the_names(word, names):
    with pytest.raises(TypeError) as refusal:
        word(5)
    expected = f"expected {word.__name__} with arguments of these names: {names}; got: 5."
    assert str(refusal.value) == expected


@given(st.integers(1, 9), st.integers(1, 9), st.floats(0, 1, exclude_max=True))
def test_exactly_the_attempts_of_the_policy_are_made(attempt, attempts, random):
    policy = RetryPolicy(attempts=attempts)
    verdict = decide_failure(ERROR, None, replace(FIRST, attempt=attempt, policy=policy, random=random))
    assert verdict.will_retry is (attempt < attempts)
    if verdict.will_retry:
        assert verdict.run_at == NOON + backoff(attempt, policy, random)
        assert verdict.counts


def test_a_retry_is_due_at_once_without_a_wait_and_before_the_end_of_time():
    verdict = decide_failure(ERROR, None, replace(FIRST, policy=RetryPolicy(base=0)))
    assert (verdict.status, verdict.run_at) == (Status.PENDING, NOON)
    endless = RetryPolicy(attempts=10**9, base=1e300, max=1e300, jitter=0)
    verdict = decide_failure(ERROR, None, replace(FIRST, policy=endless))
    assert verdict.run_at == datetime(9999, 12, 31, tzinfo=UTC)


def test_a_retry_that_would_start_past_the_deadline_expires_instead():
    assert decide_failure(ERROR, None, replace(FIRST, deadline=NOON + timedelta(seconds=1))).will_retry
    verdict = decide_failure(ERROR, None, replace(FIRST, deadline=NOON + timedelta(seconds=1) - MICROSECOND))
    assert (verdict.status, verdict.reason) == (Status.DEAD, Reason.EXPIRED)
    assert verdict.error == "deadline exceeded before a retry of: ValueError: no"


def test_a_work_dies_of_its_last_failure_or_of_its_deadline_before_the_start():
    verdict = decide_failure(ERROR, None, replace(LAST, deadline=NOON - TEN))
    assert (verdict.reason, verdict.error) == (Reason.EXHAUSTED, "ValueError: no")
    verdict = expire()
    assert (verdict.status, verdict.reason) == (Status.DEAD, Reason.EXPIRED)
    assert verdict.error == "deadline exceeded"


def test_a_lost_work_is_due_at_once_while_it_has_attempts():
    verdict = decide_lost(replace(FIRST, attempt=2))
    assert (verdict.status, verdict.outcome, verdict.run_at) == (Status.PENDING, Outcome.LOST, NOON)
    assert verdict.error == "worker lost"
    verdict = decide_lost(LAST)
    assert (verdict.status, verdict.reason) == (Status.DEAD, Reason.EXHAUSTED)
    assert (verdict.outcome, verdict.error) == (Outcome.LOST, "worker lost")


words = st.one_of(
    st.just(ERROR),
    st.builds(Defer, delay=st.floats(0, 1e12)),
    st.builds(Reschedule, delay=st.floats(0, 1e12)),
    st.builds(Abort, st.none() | st.text(max_size=3)),
)
inputs = st.builds(
    RetryInput,
    attempt=st.integers(1, 5),
    policy=st.builds(RetryPolicy, attempts=st.integers(1, 5), base=st.floats(0, 100)),
    deadline=st.none() | st.floats(-100, 100).map(lambda offset: NOON + timedelta(seconds=offset)),
    now=st.just(NOON),
    random=st.floats(0, 1, exclude_max=True),
)


@given(words, st.none() | st.sampled_from(["abort", "retry"]) | words, inputs)
def test_a_work_either_ends_with_a_reason_or_comes_back_with_a_moment(error, advice, retry_input):
    verdict = decide_failure(error, advice, retry_input)
    if verdict.will_retry:
        assert verdict.reason is None
        assert verdict.run_at >= NOON
        assert verdict.status is (Status.SCHEDULED if verdict.run_at > NOON else Status.PENDING)
        assert verdict.counts is (verdict.outcome is Outcome.FAILED)
    else:
        assert (verdict.status, verdict.run_at, verdict.outcome) == (Status.DEAD, None, Outcome.DIED)
        assert verdict.reason in {Reason.ABORTED, Reason.EXHAUSTED, Reason.EXPIRED}


@given(moments)
def test_the_deadline_itself_is_in_time_and_a_microsecond_later_is_not(deadline):
    assert not has_expired(deadline, deadline - MICROSECOND)
    assert not has_expired(deadline, deadline)
    assert has_expired(deadline, deadline + MICROSECOND)
    assert not has_expired(None, deadline)


@given(moments, moments)
def test_moments_are_compared_across_time_zones(deadline, moment):
    assert has_expired(deadline, moment) is (moment.timestamp() > deadline.timestamp())
