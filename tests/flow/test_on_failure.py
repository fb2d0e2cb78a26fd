"""``on_failure``: who decides what follows a failed attempt."""

from __future__ import annotations

from typing import Any

import pytest

from django_ayework import Abort, Defer, Reschedule, Retry, enqueue, work
from tests.app.works import fail
from tests.flow.conftest import ONCE, Configure

pytestmark = pytest.mark.django_db


def test_the_type_decides_first(drain: Any, configure: Configure) -> None:
    asked: list[Any] = []

    def classify(error: Exception, info: Any) -> str:
        asked.append((str(error), info.id, info.type, info.group_id, info.attempt, info.attempts))
        return "abort"

    configure(ON_FAILURE=lambda error, info: asked.append("system"))

    @work(name="t.failures.classified", on_failure=classify, retry=Retry(attempts=5))
    def classified() -> None:
        raise ValueError("400")

    handle = enqueue(classified())
    drain(raises=False)
    state = handle.state()
    assert state is not None
    assert (state.reason, state.error, state.attempt) == ("aborted", "ValueError: 400", 1)
    assert asked == [("400", handle.id, "t.failures.classified", handle.id, 1, 5)]


def test_the_system_decides_for_types_without_a_word(outcome: Any, configure: Configure) -> None:
    configure(ON_FAILURE=lambda error, info: "abort")
    assert outcome(fail(), retry=Retry(attempts=5)).reason == "aborted"


@pytest.mark.parametrize("advice", ["retry", None])
def test_no_advice_is_an_ordinary_retry(outcome: Any, configure: Configure, advice: Any) -> None:
    configure(ON_FAILURE=lambda error, info: advice)
    state = outcome(fail(), retry=Retry(attempts=2))
    assert (state.status, state.attempt) == ("scheduled", 1)


def test_advice_can_defer_without_using_attempts(drain: Any, configure: Configure, time_travel: Any) -> None:
    seen: list[int] = []

    def wait(error: Exception, info: Any) -> Any:
        seen.append(info.attempt)
        return Defer(delay=15) if len(seen) < 4 else None

    configure(ON_FAILURE=wait)
    handle = enqueue(fail(), retry=ONCE)
    for _ in range(4):
        drain(raises=False)
        time_travel(16)
    assert seen == [1, 1, 1, 1]
    state = handle.state()
    assert state is not None and state.reason == "exhausted"


def test_a_hook_given_as_a_dotted_path_is_asked(outcome: Any, configure: Configure) -> None:
    configure(ON_FAILURE="tests.flow.hooks.always_abort")
    assert outcome(fail(), retry=Retry(attempts=5)).reason == "aborted"


@pytest.mark.parametrize(
    "error",
    [Abort("mine"), Defer(delay=60), Reschedule(delay=60)],
    ids=["abort", "defer", "reschedule"],
)
def test_what_the_handler_says_itself_wins_and_nobody_is_asked(
    outcome: Any, configure: Configure, error: Exception
) -> None:
    asked: list[Exception] = []
    configure(ON_FAILURE=lambda error, info: asked.append(error) or "retry")

    @work(name="t.failures.explicit")
    def explicit() -> None:
        raise error

    state = outcome(explicit(), retry=Retry(attempts=5))
    assert asked == []
    assert state.status == ("dead" if isinstance(error, Abort) else "scheduled")
    assert state.attempt == (0 if isinstance(error, Defer) else 1)


def test_a_classifier_that_raises_is_reported_and_advises_nothing(
    outcome: Any, configure: Configure, reported: list[Any]
) -> None:
    def broken(error: Exception, info: Any) -> str:
        raise LookupError("classifier down")

    configure(ON_FAILURE=broken)
    state = outcome(fail(), retry=Retry(attempts=2))
    assert (state.status, state.attempt, state.last_error) == ("scheduled", 1, "RuntimeError: no luck")
    assert reported == [("classifier down", "commit")]


def test_advice_that_makes_no_sense_is_a_failure_that_says_so(outcome: Any, configure: Configure) -> None:
    configure(ON_FAILURE=lambda error, info: Defer(delay=-5))
    state = outcome(fail())
    assert state.status == "dead"
