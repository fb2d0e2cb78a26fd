"""Events show what a work waits for, or has waited for, and read it for those who look."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest

from django_ayework import WorkState, dependency, enqueue, get_handle
from django_ayework.define.handles import WorkEvent
from django_ayework.models import Work
from django_ayework.signals import work_queued, work_succeeded
from django_ayework.testing import enqueued
from tests.app.works import add
from tests.flow.conftest import Configure

pytestmark = pytest.mark.django_db


def waiting() -> tuple[str, str]:
    """Queue a work, one that is blocked by it, and a gate over it; return the ids of the first two."""
    first = enqueue(add(a=1, b=1))
    blocked = enqueue(add(a=2, b=2), blockers=[first])
    enqueue(dependency([first], [add(a=3, b=3)]))
    return first.id, blocked.id


def states_of(events: list[WorkEvent], id: str) -> list[WorkState]:
    return [event.work for event in events if event.work is not None and event.id == id]


def released_by_gate() -> str:
    return Work.objects.exclude(parent_id=None).get().id


def test_each_event_shows_the_blockers(drain: Any, events: list[WorkEvent]) -> None:
    first, blocked = waiting()
    drain()
    states = states_of(events, blocked)
    assert [str(state.status) for state in states] == ["blocked", "running", "success"]
    assert [(state.blockers, state.dependents) for state in states] == [((first,), ())] * 3


def test_each_event_shows_the_dependents(drain: Any, events: list[WorkEvent]) -> None:
    first, _ = waiting()
    drain()
    states = states_of(events, released_by_gate())
    assert [str(state.status) for state in states] == ["pending", "running", "success"]
    assert [(state.blockers, state.dependents) for state in states] == [((), (first,))] * 3


def test_they_are_read_when_somebody_looks_and_only_once(
    drain: Any, events: list[WorkEvent], django_assert_num_queries: Any
) -> None:
    first, blocked = waiting()
    drain()
    state = states_of(events, blocked)[0]
    with django_assert_num_queries(0):
        assert (state.id, str(state.status), state.dependents) == (blocked, "blocked", ())
    with django_assert_num_queries(1):
        assert state.blockers == state.blockers == (first,)


def test_the_last_event_shows_what_the_handle_shows(drain: Any, events: list[WorkEvent]) -> None:
    _, blocked = waiting()
    drain()
    told, asked = states_of(events, blocked)[-1], get_handle(blocked).state()
    assert told == asked
    assert asked == told
    assert asdict(told) == asdict(asked)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda state: pickle.loads(pickle.dumps(state))]
)
def test_a_copy_shows_the_same(drain: Any, events: list[WorkEvent], copied: Callable[..., Any]) -> None:
    first, blocked = waiting()
    drain()
    assert copied(states_of(events, blocked)[-1]).blockers == (first,)


def test_async_receivers_see_them_in_the_transaction_of_a_test(drain: Any, configure: Configure) -> None:
    seen: list[tuple[str, ...]] = []

    async def hears(sender: Any, work: WorkState, **kwargs: Any) -> None:
        if work.blockers:
            seen.append(work.blockers)

    for signal in (work_queued, work_succeeded):
        signal.connect(hears)
    try:
        first, _ = waiting()
        drain()
    finally:
        for signal in (work_queued, work_succeeded):
            signal.disconnect(hears)
    assert seen == [(first,)] * 2


def test_what_the_testing_kit_finds_shows_them() -> None:
    first, blocked = waiting()
    assert {state.id: state.blockers for state in enqueued(add) if state.blockers} == {blocked: (first,)}


def test_a_state_has_no_other_attributes(drain: Any, events: list[WorkEvent]) -> None:
    _, blocked = waiting()
    drain()
    with pytest.raises(AttributeError, match="statuss"):
        _ = states_of(events, blocked)[0].statuss  # type: ignore[attr-defined]
