"""Options: which level wins, and when they are decided."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from django_ayework import Context, Retry, WorkState, enqueue, registry, work
from django_ayework.rules.retry import RetryPolicy
from django_ayework.testing import enqueued, now
from tests.app.works import add
from tests.flow.conftest import Configure

pytestmark = pytest.mark.django_db


def computed(n: int = 0) -> dict[str, Any]:
    return {"priority": 2, "retry": Retry(base=22)}


@work(
    name="t.options.levels",
    priority=1,
    fairness="tg",
    retry=Retry(attempts=7, base=11),
    options=computed,
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


def stated(handle: Any) -> WorkState:
    state = handle.state()
    assert state is not None
    return state


def test_each_level_wins_over_the_next_and_retry_is_merged_field_by_field(configure: Configure) -> None:
    configure(RETRY={"attempts": 4, "factor": 9})
    state = stated(enqueue(levels(), retry=Retry(jitter=0)))
    assert state.priority == 2
    assert state.fairness == "tg"
    assert state.retry == RetryPolicy(attempts=7, base=22, factor=9, max=30, jitter=0)
    assert state.attempts == 7


def test_queue_time_wins_over_everything() -> None:
    state = stated(enqueue(levels(), priority=5, fairness="q", retry=Retry(attempts=1, base=3), queue="mail"))
    assert (state.priority, state.fairness, state.attempts, state.retry.base) == (5, "q", 1, 3)
    assert state.queue == "mail"


def test_none_counts_as_not_given() -> None:
    state = stated(enqueue(levels(), priority=None, retry=None, fairness=None))  # type: ignore[call-overload]
    assert (state.priority, state.attempts, state.fairness) == (2, 7, "tg")


def test_without_any_level_the_defaults_apply() -> None:
    state = stated(enqueue(add(a=1, b=2)))
    assert state.retry == RetryPolicy(attempts=3, base=1, factor=2, max=30, jitter=0.5)
    assert (state.priority, state.fairness, state.timeout, state.deadline) == (0, None, None, None)


def test_the_options_of_ctx_queue_are_queue_time_options(drain: Any) -> None:
    enqueue(parent())
    drain(limit=1)
    state = enqueued(levels)[0]
    assert (state.priority, state.queue, state.fairness) == (9, "mail", "tg")
    assert state.retry == RetryPolicy(attempts=7, base=22, factor=2, max=30, jitter=0)
    assert state.start_at - state.queued_at == timedelta(seconds=7)


def test_the_options_of_ctx_queue_win_over_a_computed_start(drain: Any) -> None:
    enqueue(parent())
    drain(limit=1)
    state = enqueued(later)[0]
    assert state.start_at - state.queued_at == timedelta(seconds=7)
    assert state.deadline is not None
    assert state.deadline - state.queued_at == timedelta(minutes=10)


def test_the_options_of_ctx_queue_do_not_reach_a_nested_queue(drain: Any) -> None:
    enqueue(parent())
    drain(limit=1)
    state = enqueued(levels)[1]
    assert (state.priority, state.queue, state.retry.jitter) == (2, "default", 0.5)


def test_computed_options_may_delay() -> None:
    state = stated(enqueue(later(minutes=5)))
    assert state.status == "scheduled"
    assert state.start_at - state.queued_at == timedelta(minutes=5)


def test_a_delay_given_wins_over_a_computed_one() -> None:
    state = stated(enqueue(later(minutes=5), delay=7))
    assert state.start_at - state.queued_at == timedelta(seconds=7)


def test_run_at_wins_over_delay() -> None:
    moment = now() + timedelta(seconds=100)
    assert stated(enqueue(add(a=1, b=2), delay=5, run_at=moment)).start_at == moment


def test_a_deadline_wins_over_expires() -> None:
    moment = now() + timedelta(seconds=777)
    assert stated(enqueue(add(a=1, b=2), expires=5, deadline=moment)).deadline == moment


def test_expires_counts_from_the_queueing() -> None:
    state = stated(enqueue(add(a=1, b=2), expires=timedelta(minutes=1), delay=30))
    assert state.deadline == state.queued_at + timedelta(minutes=1)


def test_a_start_in_the_past_is_kept_and_the_work_runs_at_once(drain: Any) -> None:
    past = now() - timedelta(days=1)
    handle = enqueue(add(a=1, b=2), run_at=past)
    assert stated(handle).status == "pending"
    assert drain().succeeded == 1
    assert stated(handle).start_at == past


@pytest.mark.parametrize("name", ["run_at", "deadline"])
def test_naive_moments_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"expected {name} to be an aware datetime, got the naive"):
        enqueue(add(a=1, b=2), **{name: datetime(2030, 1, 1)})  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dealy": 5}, "'dealy' is not a queueing option. Did you mean 'delay'?"),
        ({"delay": -1}, "expected delay to be 0 seconds or more, got: -1."),
        ({"delay": "5"}, "expected delay to be seconds (a number) or a timedelta, got: '5' (str)."),
        ({"expires": float("nan")}, "expected expires to be 0 seconds or more, got: nan."),
        ({"timeout": True}, "expected timeout to be seconds (a number) or a timedelta, got: True (bool)."),
        (
            {"priority": 1.5},
            "expected priority to be a whole number from -2147483647 to 2147483647, got: 1.5.",
        ),
        (
            {"priority": 2**31},
            "expected priority to be a whole number from -2147483647 to 2147483647, got: 2147483648.",
        ),
        ({"retry": {"attempts": 2}}, "expected retry to be a Retry(...), got: {'attempts': 2}."),
        ({"queue": ""}, "expected queue to be a text of 1 to 64 printable characters, got: ''."),
        ({"run_at": "noon"}, "expected run_at to be an aware datetime, got: 'noon' (str)."),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_options_that_cannot_be_used_are_refused_in_one_sentence(options: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError)) as raised:
        enqueue(add(a=1, b=2), **options)
    assert str(raised.value) == message


def test_options_are_decided_when_the_work_is_queued(configure: Configure) -> None:
    def declare(attempts: int) -> Any:
        @work(
            name="t.options.changing", retry=Retry(attempts=attempts), timeout=attempts, queue=f"q{attempts}"
        )
        def changing() -> None: ...

        return changing

    configure(RETRY={"base": 5})
    handle = enqueue(declare(attempts=2)())
    declare(attempts=9)
    configure(RETRY={"base": 6})
    state = stated(handle)
    assert (state.attempts, state.timeout, state.queue, state.retry.base) == (2, 2, "q2", 5)
    registry.unregister("t.options.changing")


def test_extreme_numbers_survive() -> None:
    state = stated(enqueue(add(a=1, b=2), priority=-(2**31 - 1), delay=10**12, retry=Retry(max=10**12)))
    assert state.priority == -(2**31 - 1)
    assert state.start_at.year == 9999
    assert state.retry.max == 10**12


def test_a_limit_of_no_time_at_all_is_kept() -> None:
    state = stated(enqueue(add(a=1, b=2), timeout=0, expires=0))
    assert state.timeout == 0
    assert state.deadline == state.queued_at
