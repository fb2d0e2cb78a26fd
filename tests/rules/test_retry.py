"""Durations and moments, and what follows from a failed attempt: the wait, the decision, the deadline."""

import math
from dataclasses import asdict, replace
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from django_ayework import Abort, Defer, Reschedule, Retry
from django_ayework.rules import retry
from django_ayework.rules.durations import EARLIEST, LATEST, later, require_aware, seconds
from django_ayework.rules.retry import AttemptDecision, RetryInput, RetryPolicy, backoff
from django_ayework.rules.states import Outcome, Reason, Status
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


@pytest.mark.parametrize("value", ["2026-01-01", 5, date(2026, 1, 1), timedelta(1), None])
def test_what_is_no_aware_moment_is_refused(value):
    with pytest.raises(TypeError, match=rf"expected deadline to be an aware .* \({type(value).__name__}\)"):
        require_aware(value, "deadline")
    with pytest.raises(ValueError, match=r"expected run_at .* the naive .*; use django\.utils\.timezone"):
        require_aware(datetime(2026, 1, 1), "run_at")


@given(moments, st.floats(0, 1e9), st.floats(3e11, allow_infinity=False) | st.just(timedelta.max))
@example(NOON, 0, 1e308)
def test_later_adds_seconds_and_beyond_every_calendar_it_is_the_last_day(moment, wait, endless):
    assert require_aware(moment, "run_at") is moment
    assert later(moment, wait) == later(moment, timedelta(seconds=wait)) == moment + timedelta(seconds=wait)
    assert later(moment, endless) == datetime(9999, 12, 31, tzinfo=moment.tzinfo)


@pytest.mark.parametrize("hours", [-12, 0, 14])
def test_a_moment_at_an_end_of_the_calendar_is_one_that_every_time_zone_has(hours):
    zone = timezone(timedelta(hours=hours))
    for end, day in ((datetime.min, EARLIEST), (datetime.max, LATEST)):
        moment = require_aware(end.replace(tzinfo=zone), "run_at")
        assert moment == day
        assert {moment.astimezone(timezone(timedelta(hours=each))).year for each in (-12, 14)} == {day.year}


ERROR, FAILED = ValueError("no"), "ValueError: no"
DEFERRED, RESCHEDULED = "Defer: Deferred by its handler.", "Reschedule: Rescheduled by its handler."
LATE = "deadline exceeded before a retry of: {}"
TEN, SECOND, MICROSECOND = timedelta(seconds=10), timedelta(seconds=1), timedelta(microseconds=1)
LAST_DAY = datetime(9999, 12, 31, tzinfo=UTC)
FIRST = RetryInput(attempt=1, policy=RetryPolicy(jitter=0), deadline=None, now=NOON, random=0.0)
ENDLESS = RetryPolicy(attempts=10**9, base=1e300, max=1e300, jitter=0)
chances = st.floats(0, 1, exclude_max=True)
numbers = st.floats(0, 1e4) | st.integers(0, 10**9) | st.floats(0, allow_infinity=False)
given_values = {"base": numbers, "factor": numbers, "max": numbers, "jitter": st.floats(0, 1)}
fields = {"attempts": st.integers(1, 99), **given_values}


def policy_of(**given):
    """Return a policy whose base is not above its max."""
    if given["base"] is not None and given["max"] is not None:
        given["base"], given["max"] = sorted([given["base"], given["max"]])
    return Retry(**given)


retries = st.builds(policy_of, **{name: st.none() | values for name, values in fields.items()})


def decide(error, advice=None, **facts):
    """Decide on the first of three attempts, of which these facts differ."""
    return retry.decide_failure(error, advice, replace(FIRST, **facts))


def test_an_exception_that_cannot_be_compared_is_a_failure_like_any_other():
    class Incomparable(Exception):
        __hash__ = None

        def __eq__(self, other):
            raise RuntimeError("not to be compared")

    assert decide(Incomparable("no")).run_at is not None


@example(2, Retry(base=1, factor=2, max=30, jitter=0.5), 0.0)  # no jitter drawn
@example(1, Retry(base=30, factor=2, max=30, jitter=0), 0.0)  # the bound holds for the first retry too
@example(10_000, Retry(base=0, factor=2, max=30, jitter=0), 0.0)
@given(st.integers(1, 200) | st.integers(1, 10**9), st.builds(policy_of, **given_values), chances)
def test_the_wait_follows_the_formula_and_none_is_too_large_to_be_computed(attempt, policy, random):
    try:
        grown = policy.base * math.pow(policy.factor, attempt - 1)
    except OverflowError:
        grown = math.inf if policy.base else 0
    wait = backoff(attempt, RetryPolicy.resolve(policy), random)
    expected = min(min(grown, policy.max) * (1 - policy.jitter * random), retry.LONGEST)
    assert wait.total_seconds() == pytest.approx(expected, rel=1e-9, abs=1e-6)
    assert later(NOON, wait) >= NOON


@given(st.lists(st.none() | retries, max_size=4))
def test_policies_merge_field_by_field_the_first_given_winning(levels):
    resolved = RetryPolicy.resolve(*levels)
    expected, place = {}, {}
    for number, level in enumerate(level for level in [*levels, RetryPolicy()] if level):
        for name in fields:
            if name not in expected and getattr(level, name) is not None:
                expected[name], place[name] = getattr(level, name), number
    if expected["base"] > expected["max"]:  # the first one given holds
        name, other = sorted(("base", "max"), key=place.__getitem__)
        expected[other] = expected[name]
    assert asdict(resolved) == expected


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


def test_a_base_above_the_max_is_refused():
    with pytest.raises(ValueError, match=r"expects base to be at most max, got: base=31\.0, max=30\.0"):
        Retry(base=31, max=30)


def again(run_at, error, outcome=Outcome.FAILED):
    status = Status.SCHEDULED if run_at > NOON else Status.PENDING
    counts = outcome is not Outcome.DEFERRED
    return AttemptDecision(status=status, outcome=outcome, error=error, run_at=run_at, counts=counts)


def dead(reason, error, outcome=Outcome.DIED):
    return AttemptDecision(status=Status.DEAD, outcome=outcome, error=error, reason=reason)


def deferred(run_at):
    return again(run_at, DEFERRED, Outcome.DEFERRED)


@pytest.mark.parametrize(
    ("raised", "facts", "decided"),
    [
        (ERROR, {}, again(NOON + SECOND, FAILED)),
        (ERROR, {"policy": RetryPolicy(base=0)}, again(NOON, FAILED)),
        (ERROR, {"policy": ENDLESS}, again(LAST_DAY, FAILED)),
        (ERROR, {"attempt": 3, "deadline": NOON - TEN}, dead(Reason.EXHAUSTED, FAILED)),
        (ERROR, {"deadline": NOON + SECOND}, again(NOON + SECOND, FAILED)),
        (ERROR, {"deadline": NOON + SECOND - MICROSECOND}, dead(Reason.EXPIRED, LATE.format(FAILED))),
        (Abort("no card"), {}, dead(Reason.ABORTED, "no card")),
        (Defer(delay=10), {"attempt": 3, "deadline": NOON}, deferred(NOON + TEN)),
        (Defer(delay=TEN), {}, deferred(NOON + TEN)),
        (Defer(run_at=NOON + TEN), {}, deferred(NOON + TEN)),
        (Defer(run_at=NOON - TEN), {}, deferred(NOON)),  # the past means now
        (Defer(run_at=NOON), {}, deferred(NOON)),
        (Defer(delay=0), {}, deferred(NOON)),
        (Defer(delay=1e300), {}, deferred(LAST_DAY)),  # beyond every calendar
        (Reschedule(delay=10), {}, again(NOON + TEN, RESCHEDULED)),
        (Reschedule(delay=10, cause="rate limit"), {}, again(NOON + TEN, "rate limit")),
        (Reschedule(delay=10, cause=OSError("busy")), {}, again(NOON + TEN, "OSError: busy")),
        (Reschedule(delay=10, cause="busy"), {"attempt": 3}, dead(Reason.EXHAUSTED, "busy")),
        (Reschedule(run_at=NOON - TEN), {}, again(NOON, RESCHEDULED)),
        (Reschedule(delay=10), {"deadline": NOON + TEN}, again(NOON + TEN, RESCHEDULED)),
        (Reschedule(delay=10), {"deadline": NOON}, dead(Reason.EXPIRED, LATE.format(RESCHEDULED))),
        (
            Reschedule(run_at=NOON - TEN),
            {"deadline": NOON - MICROSECOND},
            dead(Reason.EXPIRED, LATE.format(RESCHEDULED)),
        ),
    ],
)
def test_what_is_decided_after_an_attempt(raised, facts, decided):
    assert decide(raised, **facts) == decided


@pytest.mark.parametrize("raised", [Defer(delay=10), Reschedule(delay=10), Abort("no card")])
@pytest.mark.parametrize("advice", ["abort", "retry", Defer(delay=99), Abort(), Reschedule(delay=99)])
def test_an_instruction_that_the_handler_raised_wins_over_all_advice(raised, advice):
    assert decide(raised, advice) == decide(raised)


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
@pytest.mark.parametrize(("word", "names"), [(Defer, "delay, run_at"), (Reschedule, "delay, run_at, cause")])
def test_an_instruction_without_one_usable_moment_is_refused_by_name(word, names, arguments, error, message):
    with pytest.raises(error, match=message.format(word.__name__)):
        decide(word(**arguments))
    with pytest.raises(TypeError) as refusal:
        word(5)
    assert str(refusal.value) == (f"expected {word.__name__} with arguments of these names: {names}; got: 5.")


@given(st.integers(1, 9), st.integers(1, 9), chances)
def test_exactly_the_attempts_of_the_policy_are_made(attempt, attempts, random):
    policy = RetryPolicy(attempts=attempts)
    expected = again(NOON + backoff(attempt, policy, random), FAILED)
    if attempt >= attempts:
        expected = dead(Reason.EXHAUSTED, FAILED)
    assert decide(ERROR, attempt=attempt, policy=policy, random=random) == expected


def test_a_lost_work_is_due_at_once_while_it_has_attempts_and_a_late_one_is_dead():
    again_lost = again(NOON, "worker lost", Outcome.LOST)
    assert retry.decide_lost(replace(FIRST, attempt=2)) == again_lost
    assert retry.decide_lost(replace(FIRST, attempt=3)) == dead(Reason.EXHAUSTED, "worker lost", Outcome.LOST)
    assert retry.expire() == dead(Reason.EXPIRED, "deadline exceeded")


@given(moments, moments)
def test_a_deadline_is_exceeded_from_the_microsecond_after_it_in_every_time_zone(deadline, moment):
    assert not retry.has_expired(deadline, deadline)
    assert retry.has_expired(deadline, deadline + MICROSECOND)
    assert not retry.has_expired(None, deadline)
    assert retry.has_expired(deadline, moment) is (moment.timestamp() > deadline.timestamp())
