"""What follows from how an attempt ended."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ayework import Abort, Defer, Reschedule
from django_ayework.rules.retry import RetryInput, RetryPolicy, backoff, decide_failure, decide_lost, expire
from django_ayework.rules.states import Outcome, Reason, Status
from tests.rules.moments import NOON

FIRST = RetryInput(attempt=1, policy=RetryPolicy(jitter=0), deadline=None, now=NOON, random=0.0)
LAST = replace(FIRST, attempt=3)
ERROR = ValueError("no")
TEN = timedelta(seconds=10)
HAIR = timedelta(microseconds=1)


# The order of A19: what the handler raised, then what on_failure answers, then attempts.


@pytest.mark.parametrize("advice", [None, "abort", "retry", Defer(delay=99), Abort(), Reschedule(delay=99)])
def test_a_raised_deferral_wins_over_all_advice(advice):
    verdict = decide_failure(Defer(delay=10), advice, FIRST)

    assert (verdict.outcome, verdict.run_at) == (Outcome.DEFERRED, NOON + TEN)


@pytest.mark.parametrize("advice", [None, "retry", Defer(delay=99), Reschedule(delay=99)])
def test_a_raised_abort_wins_over_all_advice(advice):
    verdict = decide_failure(Abort("no card"), advice, FIRST)

    assert (verdict.status, verdict.reason, verdict.error) == (Status.DEAD, Reason.ABORTED, "no card")


@pytest.mark.parametrize("advice", [None, "abort", "retry", Defer(delay=99), Reschedule(delay=99)])
def test_a_raised_rescheduling_wins_over_all_advice(advice):
    verdict = decide_failure(Reschedule(delay=10), advice, FIRST)

    assert (verdict.outcome, verdict.run_at) == (Outcome.FAILED, NOON + TEN)


def test_on_failure_may_abort():
    verdict = decide_failure(ERROR, "abort", FIRST)

    assert (verdict.status, verdict.reason) == (Status.DEAD, Reason.ABORTED)
    assert verdict.outcome is Outcome.DIED
    assert verdict.error == "ValueError: no"


def test_on_failure_may_defer_and_the_failure_is_recorded():
    verdict = decide_failure(ERROR, Defer(delay=15), LAST)

    assert verdict.outcome is Outcome.DEFERRED
    assert verdict.run_at == NOON + timedelta(seconds=15)
    assert verdict.error == "ValueError: no"
    assert not verdict.counts


@pytest.mark.parametrize("advice", [None, "retry", "", "whatever", 5, True, object()])
def test_any_other_answer_leaves_it_to_the_attempts(advice):
    assert decide_failure(ERROR, advice, FIRST).run_at == NOON + timedelta(seconds=1)
    assert decide_failure(ERROR, advice, LAST).reason is Reason.EXHAUSTED


# Deferring


def test_a_deferral_gives_the_attempt_back_however_many_are_used_up():
    verdict = decide_failure(Defer(delay=10), None, replace(LAST, attempt=99))

    assert (verdict.status, verdict.counts, verdict.will_retry) == (Status.SCHEDULED, False, True)


@pytest.mark.parametrize(
    "word", [Defer(delay=10), Defer(delay=timedelta(seconds=10)), Defer(run_at=NOON + TEN)]
)
def test_a_deferral_names_a_delay_or_a_moment(word):
    assert decide_failure(word, None, FIRST).run_at == NOON + TEN


@pytest.mark.parametrize("word", [Defer(run_at=NOON - TEN), Defer(run_at=NOON), Defer(delay=0)])
def test_a_deferral_into_the_past_means_now(word):
    verdict = decide_failure(word, None, FIRST)

    assert (verdict.status, verdict.run_at) == (Status.PENDING, NOON)


def test_a_deferral_past_the_deadline_is_left_to_the_start():
    retry_input = replace(FIRST, deadline=NOON + HAIR)

    assert decide_failure(Defer(delay=10), None, retry_input).outcome is Outcome.DEFERRED


def test_a_delay_beyond_every_calendar_is_the_last_day():
    assert decide_failure(Defer(delay=1e300), None, FIRST).run_at == datetime(9999, 12, 31, tzinfo=UTC)


# Rescheduling


def test_a_rescheduling_uses_an_attempt():
    assert decide_failure(Reschedule(delay=10), None, FIRST).counts
    assert decide_failure(Reschedule(delay=10), None, LAST).reason is Reason.EXHAUSTED


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        (None, "Reschedule: Rescheduled by its handler."),
        ("rate limit", "rate limit"),
        (OSError("busy"), "OSError: busy"),
    ],
)
def test_the_cause_of_a_rescheduling_is_recorded(cause, text):
    assert decide_failure(Reschedule(delay=10, cause=cause), None, FIRST).error == text
    assert decide_failure(Reschedule(delay=10, cause=cause), None, LAST).error == text


def test_a_rescheduling_past_the_deadline_expires():
    retry_input = replace(FIRST, deadline=NOON + TEN)

    assert decide_failure(Reschedule(run_at=NOON + TEN), None, retry_input).outcome is Outcome.FAILED
    assert decide_failure(Reschedule(run_at=NOON + TEN + HAIR), None, retry_input).reason is Reason.EXPIRED


def test_a_rescheduling_into_the_past_means_now_for_the_deadline_too():
    assert decide_failure(Reschedule(run_at=NOON - TEN), None, FIRST).run_at == NOON
    overdue = replace(FIRST, deadline=NOON - HAIR)
    assert decide_failure(Reschedule(run_at=NOON - TEN), None, overdue).reason is Reason.EXPIRED


# Moments that cannot be used


@pytest.mark.parametrize("word", [Defer, Reschedule])
def test_a_naive_moment_is_refused_naming_who_said_it(word):
    with pytest.raises(ValueError, match=rf"expected {word.__name__}\(run_at=\) .* got the naive"):
        decide_failure(word(run_at=datetime(2026, 1, 1)), None, FIRST)


@pytest.mark.parametrize("word", [Defer, Reschedule])
def test_a_delay_that_is_none_is_refused_naming_who_said_it(word):
    with pytest.raises(ValueError, match=rf"expected {word.__name__}\(delay=\) to be 0 seconds or more"):
        decide_failure(word(delay=-5), None, FIRST)
    with pytest.raises(TypeError, match=rf"expected {word.__name__}\(delay=\) to be seconds"):
        decide_failure(word(delay="soon"), None, FIRST)


@pytest.mark.parametrize("word", [Defer, Reschedule])
def test_exactly_one_of_delay_and_run_at_is_given(word):
    for given_both_or_none in ({}, {"delay": 1, "run_at": NOON}):
        with pytest.raises(TypeError, match=f"{word.__name__} expects exactly one of delay= .* and run_at="):
            word(**given_both_or_none)


# Giving up


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        (None, "Abort: Aborted by its handler."),
        ("no card", "no card"),
        (KeyError("card"), "KeyError: 'card'"),
    ],
)
def test_an_abort_records_its_cause(cause, text):
    verdict = decide_failure(Abort(cause), None, FIRST)

    assert (verdict.error, verdict.reason, verdict.run_at) == (text, Reason.ABORTED, None)
    assert not verdict.will_retry


# Attempts


def test_the_first_failures_retry_after_the_backoff_and_the_last_one_dies():
    trials = [replace(FIRST, attempt=attempt) for attempt in (1, 2, 3)]

    verdicts = [decide_failure(ERROR, None, retry_input) for retry_input in trials]

    assert [verdict.outcome for verdict in verdicts] == [Outcome.FAILED, Outcome.FAILED, Outcome.DIED]
    assert [verdict.run_at for verdict in verdicts] == [
        NOON + timedelta(seconds=1),
        NOON + timedelta(seconds=2),
        None,
    ]
    assert verdicts[-1].reason is Reason.EXHAUSTED
    assert {verdict.error for verdict in verdicts} == {"ValueError: no"}


@given(st.integers(1, 9), st.integers(1, 9), st.floats(0, 1, exclude_max=True))
def test_exactly_the_attempts_of_the_policy_are_made(attempt, attempts, random):
    policy = RetryPolicy(attempts=attempts)

    retry_input = replace(FIRST, attempt=attempt, policy=policy, random=random)
    verdict = decide_failure(ERROR, None, retry_input)

    assert verdict.will_retry is (attempt < attempts)
    if verdict.will_retry:
        assert verdict.run_at == NOON + backoff(attempt, policy, random)
        assert verdict.counts


def test_a_retry_without_a_wait_is_due_at_once():
    verdict = decide_failure(ERROR, None, replace(FIRST, policy=RetryPolicy(base=0)))

    assert (verdict.status, verdict.run_at) == (Status.PENDING, NOON)


def test_the_largest_policy_retries_before_the_end_of_time():
    endless = RetryPolicy(attempts=10**9, base=1e300, max=1e300, jitter=0)

    verdict = decide_failure(ERROR, None, replace(FIRST, policy=endless))

    assert verdict.run_at == datetime(9999, 12, 31, tzinfo=UTC)


# The two points at which a deadline is looked at (A22); the other one is the start, see has_expired.


def test_a_retry_that_would_start_at_the_deadline_is_in_time():
    assert decide_failure(ERROR, None, replace(FIRST, deadline=NOON + timedelta(seconds=1))).will_retry


def test_a_retry_that_would_start_past_the_deadline_expires_instead():
    verdict = decide_failure(ERROR, None, replace(FIRST, deadline=NOON + timedelta(seconds=1) - HAIR))

    assert (verdict.status, verdict.reason) == (Status.DEAD, Reason.EXPIRED)
    assert verdict.error == "deadline exceeded before a retry of: ValueError: no"


def test_a_work_without_attempts_left_dies_of_its_failure_rather_than_of_its_deadline():
    verdict = decide_failure(ERROR, None, replace(LAST, deadline=NOON - TEN))

    assert (verdict.reason, verdict.error) == (Reason.EXHAUSTED, "ValueError: no")


def test_a_work_that_expired_before_its_start_says_so():
    verdict = expire()

    assert (verdict.status, verdict.reason, verdict.error) == (
        Status.DEAD,
        Reason.EXPIRED,
        "deadline exceeded",
    )


# Lost workers


def test_a_lost_work_is_due_at_once_while_it_has_attempts():
    verdict = decide_lost(replace(FIRST, attempt=2))

    assert (verdict.status, verdict.outcome, verdict.run_at) == (Status.PENDING, Outcome.LOST, NOON)
    assert verdict.error == "worker lost"


def test_a_work_lost_in_its_last_attempt_is_exhausted():
    verdict = decide_lost(LAST)

    assert (verdict.status, verdict.reason) == (Status.DEAD, Reason.EXHAUSTED)
    assert (verdict.outcome, verdict.error) == (Outcome.LOST, "worker lost")


# Every verdict is carried out by a transition, so every one must make sense.

words = st.one_of(
    st.just(ERROR),
    st.builds(Defer, delay=st.floats(0, 1e12)),
    st.builds(Reschedule, delay=st.floats(0, 1e12)),
    st.builds(Abort, st.none() | st.text(max_size=3)),
)
trials = st.builds(
    RetryInput,
    attempt=st.integers(1, 5),
    policy=st.builds(RetryPolicy, attempts=st.integers(1, 5), base=st.floats(0, 100)),
    deadline=st.none() | st.floats(-100, 100).map(lambda offset: NOON + timedelta(seconds=offset)),
    now=st.just(NOON),
    random=st.floats(0, 1, exclude_max=True),
)


@given(words, st.none() | st.sampled_from(["abort", "retry"]) | words, trials)
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
