"""``retrying``: a function is called again by the policy of works, without a work."""

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
def awaits(request):
    return bool(request.param)


def test_it_is_called_until_it_returns_with_growing_pauses(awaits):
    first, second = OSError("one"), OSError("two")
    calls = Calls(first, second)
    _, one, two, *_ = moments = [NOON + timedelta(seconds=number) for number in range(9)]
    now = iter(moments).__next__
    assert calls.run(awaits, on_success=calls.note, on_retry=calls.note, now=now) == "done"
    assert calls.pauses == [0.1, 0.2]
    seen = [(each.attempt, each.attempts, each.last_error, each.last_attempt_at) for each in calls.states]
    assert seen == [(1, 3, None, None), (2, 3, first, one), (3, 3, second, two)]
    assert {each.started_at for each in calls.states} == {NOON}
    told = [(first, calls.states[0], 0.1), (second, calls.states[1], 0.2), ("done", calls.states[2])]
    assert calls.told == told


def test_the_last_error_is_raised_or_a_result_stands_for_it_and_no_pause_follows(awaits):
    errors = [OSError(str(number)) for number in range(3)]
    calls = Calls(*errors)
    with pytest.raises(OSError, match="2"):
        calls.run(awaits, on_error=calls.note)
    assert len(calls.pauses) == 2
    [(error, state)] = calls.told
    assert error is errors[2]
    assert (state.attempt, state.last_error) == (3, errors[2])
    for result in ("nothing", None):
        calls = Calls(*errors)
        assert calls.run(awaits, error_result=result, on_error=calls.note) is result
        assert len(calls.told) == 1


@pytest.mark.parametrize(
    ("advice", "pauses"), [(5, [5, 5]), (0, [0.1, 0.2]), (None, [0.1, 0.2]), (True, [0.1, 0.2])], ids=str
)
def test_on_gives_the_least_pause(awaits, advice, pauses):
    calls = Calls(OSError(), OSError())
    calls.run(awaits, on=lambda error, state: advice)
    assert calls.pauses == pauses


def test_on_may_stop_at_once(awaits):
    calls = Calls(OSError("away"), KeyError("bad"))
    with pytest.raises(KeyError):
        calls.run(awaits, on=lambda error, state: isinstance(error, OSError))
    assert calls.pauses == [0.1]


@pytest.mark.parametrize("advice", ["5", -1, float("nan")], ids=repr)
def test_on_returns_nothing_else(advice):
    with pytest.raises((TypeError, ValueError), match="what on"):
        Calls(OSError()).run(False, on=lambda error, state: advice)


def test_abort_stops_and_its_cause_is_raised_unless_another_on_is_given(awaits):
    calls = Calls(Abort(ValueError("no card")))
    with pytest.raises(ValueError, match="no card"):
        calls.run(awaits)
    with pytest.raises(Abort, match="no reason"):
        Calls(Abort("no reason")).run(awaits)
    assert calls.pauses == []
    calls = Calls(*[Abort(ValueError("no card")) for _ in range(3)])
    with pytest.raises(Abort):  # an error like others
        calls.run(awaits, on=lambda error, state: 0)
    assert calls.pauses == [0.1, 0.2]


def test_instructions_to_the_engine_and_interrupts_pass_at_once(awaits):
    for error in (Defer(delay=5), KeyboardInterrupt()):
        calls = Calls(error)
        with pytest.raises(type(error)):
            calls.run(awaits)
        assert calls.pauses == []


def test_jitter_is_of_the_policy_and_random_is_given(awaits):
    calls = Calls(OSError())
    calls.run(awaits, retry=Retry(base=1, jitter=0.5), random=lambda: 0.5)
    assert calls.pauses == [0.75]
