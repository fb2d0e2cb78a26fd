"""``retrying``: a function is called again by the policy of works, without a work."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_ayework import Abort, Defer, Retry, retrying
from django_ayework.retrying import State

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
POLICY = Retry(attempts=3, base=0.1, jitter=0)


class Calls:
    """A function that raises errors one by one, then returns; and what was seen of it."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.states: list[State] = []
        self.pauses: list[float] = []
        self.told: list[tuple[Any, ...]] = []

    def __call__(self, state: State) -> str:
        self.states.append(state)
        if self.errors:
            raise self.errors.pop(0)
        return "done"

    def note(self, *given: Any) -> None:
        self.told.append(given)

    def run(self, awaits: bool, **options: Any) -> str:
        options = {"retry": POLICY, **options}
        if not awaits:
            return retrying.call(self, sleep=self.pauses.append, **options)

        async def function(state: State) -> str:
            return self(state)

        async def sleep(seconds: float) -> None:
            self.pauses.append(seconds)

        return asyncio.run(retrying.acall(function, sleep=sleep, **options))


@pytest.fixture(params=[False, True], ids=["call", "acall"])
def awaits(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_it_is_called_until_it_returns_with_growing_pauses(awaits: bool) -> None:
    first, second = OSError("one"), OSError("two")
    calls = Calls(first, second)
    moments = iter(NOON + timedelta(seconds=number) for number in range(9))
    assert calls.run(awaits, on_success=calls.note, on_retry=calls.note, now=lambda: next(moments)) == "done"
    assert calls.pauses == [0.1, 0.2]
    assert [(each.attempt, each.attempts, each.last_error) for each in calls.states] == [
        (1, 3, None), (2, 3, first), (3, 3, second),
    ]  # fmt: skip
    assert {each.started_at for each in calls.states} == {NOON}
    assert [each.last_attempt_at for each in calls.states] == [
        None, NOON + timedelta(seconds=1), NOON + timedelta(seconds=2),
    ]  # fmt: skip
    assert calls.told == [
        (first, calls.states[0], 0.1),
        (second, calls.states[1], 0.2),
        ("done", calls.states[2]),
    ]


def test_the_last_error_is_raised_and_no_pause_follows_it(awaits: bool) -> None:
    errors = [OSError(str(number)) for number in range(3)]
    calls = Calls(*errors)
    with pytest.raises(OSError, match="2"):
        calls.run(awaits, on_error=calls.note)
    assert len(calls.pauses) == 2
    [(error, state)] = calls.told
    assert error is errors[2]
    assert (state.attempt, state.last_error) == (3, errors[2])


def test_a_result_may_stand_for_the_error(awaits: bool) -> None:
    calls = Calls(*[OSError()] * 3)
    assert calls.run(awaits, error_result="nothing", on_error=calls.note) == "nothing"
    assert len(calls.told) == 1
    assert Calls(*[OSError()] * 3).run(awaits, error_result=None) is None


@pytest.mark.parametrize(
    ("advice", "pauses"), [(5, [5, 5]), (0, [0.1, 0.2]), (None, [0.1, 0.2]), (True, [0.1, 0.2])], ids=str
)
def test_on_gives_the_least_pause(awaits: bool, advice: Any, pauses: list[float]) -> None:
    calls = Calls(OSError(), OSError())
    calls.run(awaits, on=lambda error, state: advice)
    assert calls.pauses == pauses


def test_on_may_stop_at_once(awaits: bool) -> None:
    calls = Calls(OSError("away"), KeyError("bad"))
    with pytest.raises(KeyError):
        calls.run(awaits, on=lambda error, state: isinstance(error, OSError))
    assert calls.pauses == [0.1]


@pytest.mark.parametrize("advice", ["5", -1, float("nan")], ids=repr)
def test_on_returns_nothing_else(advice: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="what on"):
        Calls(OSError()).run(False, on=lambda error, state: advice)


def test_abort_stops_and_its_cause_is_raised(awaits: bool) -> None:
    calls = Calls(Abort(ValueError("no card")))
    with pytest.raises(ValueError, match="no card"):
        calls.run(awaits)
    with pytest.raises(Abort, match="no reason"):
        Calls(Abort("no reason")).run(awaits)
    assert calls.pauses == []


def test_another_on_replaces_the_default_so_abort_is_an_error_like_others(awaits: bool) -> None:
    calls = Calls(*[Abort(ValueError("no card")) for _ in range(3)])
    with pytest.raises(Abort):
        calls.run(awaits, on=lambda error, state: 0)
    assert calls.pauses == [0.1, 0.2]


def test_instructions_to_the_engine_and_interrupts_pass_at_once(awaits: bool) -> None:
    for error in (Defer(delay=5), KeyboardInterrupt()):
        calls = Calls(error)
        with pytest.raises(type(error)):
            calls.run(awaits)
        assert calls.pauses == []


def test_jitter_is_of_the_policy_and_random_is_given(awaits: bool) -> None:
    calls = Calls(OSError())
    calls.run(awaits, retry=Retry(base=1, jitter=0.5), random=lambda: 0.5)
    assert calls.pauses == [0.75]
