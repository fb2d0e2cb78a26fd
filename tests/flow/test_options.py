"""Options: which level wins, and when they are decided."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from django_ayework import Context, Retry, enqueue, work
from django_ayework.rules.retry import RetryPolicy
from django_ayework.testing import drain, enqueued, now
from tests.app.models import Order
from tests.app.works import add

pytestmark = pytest.mark.django_db


@work(
    name="t.options.levels",
    priority=1,
    fairness="tg",
    retry=Retry(attempts=7, base=11),
    options=lambda n=0: {"priority": 2, "retry": Retry(base=22)},
)
def levels(n: int = 0) -> None: ...


@work(name="t.options.later", options=lambda minutes: {"delay": minutes * 60, "expires": minutes * 120})
def later(minutes: int) -> None: ...


@work(name="t.options.parent")
def parent(ctx: Context):
    return ctx.queue(
        [levels(), later(minutes=5), ctx.queue([levels(n=2)])],
        priority=9,
        retry=Retry(jitter=0),
        delay=7,
        queue="mail",
    )


def seconds(moment: datetime | None, state: Any) -> float:
    """Return how long after its queueing a work has a moment."""
    return (moment - state.queued_at).total_seconds()


def test_each_level_wins_over_the_next_and_retry_is_merged_field_by_field(configure):
    state = enqueue(add(a=1, b=2)).state()
    assert state.retry == RetryPolicy(attempts=3, base=1, factor=2, max=30, jitter=0.5)
    assert (state.priority, state.fairness, state.timeout, state.deadline) == (0, None, None, None)
    configure(RETRY={"attempts": 4, "factor": 9})
    state = enqueue(levels(), retry=Retry(jitter=0)).state()
    assert (state.priority, state.fairness, state.attempts) == (2, "tg", 7)
    assert state.retry == RetryPolicy(attempts=7, base=22, factor=9, max=30, jitter=0)
    given = enqueue(levels(), priority=5, fairness="q", retry=Retry(attempts=1, base=3), queue="mail").state()
    assert (given.priority, given.fairness, given.attempts, given.retry.base) == (5, "q", 1, 3)
    assert given.queue == "mail"
    none = enqueue(levels(), priority=None, retry=None, fairness=None).state()
    assert (none.priority, none.attempts, none.fairness) == (2, 7, "tg")


def test_the_options_of_ctx_queue_are_queue_time_options_of_its_own_works():
    enqueue(parent())
    drain(limit=1)
    (state, nested), [timed] = enqueued(levels), enqueued(later)
    assert (state.priority, state.queue, state.fairness) == (9, "mail", "tg")
    assert state.retry == RetryPolicy(attempts=7, base=22, factor=2, max=30, jitter=0)
    assert (nested.priority, nested.queue, nested.retry.jitter) == (2, "default", 0.5)
    assert seconds(state.start_at, state) == seconds(timed.start_at, timed) == 7
    assert seconds(timed.deadline, timed) == 600


MOMENT = now() + timedelta(days=1)
#: A request, its options, and how many seconds after the queueing it starts and expires.
MOMENTS: dict[str, tuple[Any, dict[str, Any], Any, Any]] = {
    "computed": (later, {}, 300, 600),
    "given over computed": (later, {"delay": 7}, 7, 600),
    "run_at over a computed delay": (later, {"run_at": MOMENT}, MOMENT, 600),
    "deadline over a computed expires": (later, {"deadline": MOMENT}, 300, MOMENT),
    "timedelta": (add, {"delay": timedelta(minutes=1)}, 60, None),
    "run_at over delay": (add, {"delay": 5, "run_at": MOMENT}, MOMENT, None),
    "deadline over expires": (add, {"expires": 5, "deadline": MOMENT}, 0, MOMENT),
    "expires counts from the queueing": (add, {"expires": timedelta(minutes=1), "delay": 30}, 30, 60),
    "no time at all": (add, {"expires": 0}, 0, 0),
}


@pytest.mark.parametrize(("type_", "options", "start", "deadline"), MOMENTS.values(), ids=MOMENTS)
def test_start_and_deadline(type_, options, start, deadline):
    state = enqueue(type_(minutes=5) if type_ is later else add(a=1, b=2), **options).state()
    assert state.status == ("scheduled" if start else "pending")
    for actual, expected in ((state.start_at, start), (state.deadline, deadline)):
        assert expected in (actual, None if actual is None else seconds(actual, state))


def test_a_start_in_the_past_is_kept_and_the_work_runs_at_once():
    past = now() - timedelta(days=1)
    handle = enqueue(add(a=1, b=2), run_at=past)
    assert handle.state().status == "pending"
    assert drain().succeeded == 1
    assert handle.state().start_at == past


WHOLE = "to be a whole number from -2147483647 to 2147483647, got:"
TEXT = "to be a text of 1 to 64 printable characters, got:"
NAIVE = (
    "to be an aware datetime, got the naive datetime.datetime(2030, 1, 1, 0, 0); "
    "use django.utils.timezone.now() or make_aware()."
)
ABOUT_KEY = "to have a primary key of at most 64 characters without NUL"
#: An option, a value that cannot be used, and what is expected of it.
REFUSED = [
    ("delay", -1, "to be 0 seconds or more, got: -1."),
    ("delay", "5", "to be seconds (a number) or a timedelta, got: '5' (str)."),
    ("expires", float("nan"), "to be 0 seconds or more, got: nan."),
    ("timeout", True, "to be seconds (a number) or a timedelta, got: True (bool)."),
    ("priority", 1.5, f"{WHOLE} 1.5."),
    ("priority", "high", f"{WHOLE} 'high'."),
    ("priority", 2**31, f"{WHOLE} 2147483648."),
    ("retry", {"attempts": 2}, "to be a Retry(...), such as Retry(attempts=5), got: {'attempts': 2}."),
    ("queue", "", f"{TEXT} ''."),
    ("queue", ["mail"], f"{TEXT} ['mail']."),
    ("fairness", "", f"{TEXT} ''."),
    ("run_at", "noon", "to be an aware datetime, got: 'noon' (str)."),
    ("run_at", datetime(2030, 1, 1), NAIVE),
    ("deadline", datetime(2030, 1, 1), NAIVE),
    ("about", 7, "to be a saved model object, got: 7."),
    ("about", Order(reference="A1"), "to be a saved model object, got: <Order: A1>."),
    ("about", Order, f"to be a saved model object, got: {Order!r}."),
    ("about", Order(pk="x" * 65, reference="A1"), f"{ABOUT_KEY}, got: {'x' * 65!r}."),
    ("about", Order(pk="a\x00b", reference="A1"), rf"{ABOUT_KEY}, got: 'a\x00b'."),
]


@pytest.mark.parametrize(("option", "value", "expected"), REFUSED)
def test_a_value_that_cannot_be_used_is_refused_in_one_sentence(option, value, expected):
    with pytest.raises((TypeError, ValueError)) as raised:
        enqueue(add(a=1, b=2), **{option: value})
    assert str(raised.value) == f"expected {option} {expected}"


def test_options_are_decided_when_the_work_is_queued(configure):
    def declare(attempts: int) -> Any:
        return work(
            name="t.options.changing", retry=Retry(attempts=attempts), timeout=attempts, queue=f"q{attempts}"
        )(lambda: None)

    configure(RETRY={"base": 5})
    handle = enqueue(declare(attempts=2)())
    declare(attempts=9)
    configure(RETRY={"base": 6})
    state = handle.state()
    assert (state.attempts, state.timeout, state.queue, state.retry.base) == (2, 2, "q2", 5)


def test_extreme_numbers_survive():
    state = enqueue(
        add(a=1, b=2), priority=-(2**31 - 1), delay=10**12, timeout=0, retry=Retry(max=10**12)
    ).state()
    assert (state.priority, state.start_at.year, state.timeout) == (-(2**31 - 1), 9999, 0)
    assert state.retry.max == 10**12
