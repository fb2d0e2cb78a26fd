"""Works that wait are given another priority or another queue."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import async_to_sync

from django_ayework import (
    NotWaiting,
    Retry,
    WorkNotFound,
    achange_priority,
    achange_queue,
    change_priority,
    change_queue,
    dependency,
    enqueue,
    trigger,
)
from django_ayework.errors import InvalidOption
from django_ayework.models import Work
from django_ayework.testing import drain
from django_ayework.testing.factories import WorkFactory
from tests.app.works import add, fail

pytestmark = pytest.mark.django_db


def row(handle: Any) -> Work:
    return Work.objects.get(id=handle.id)


def order() -> list[str]:
    """The ids of the pending works in the order of claiming."""
    pending = Work.objects.filter(status="pending")
    return [work.id for work in pending.order_by("-priority", "sort_key", "run_at", "id")]


def test_works_that_wait_get_another_priority_and_the_states_come_in_order() -> None:
    pending, later = enqueue(add(a=1, b=1)), enqueue(add(a=1, b=1), delay=60)
    blocked = enqueue(dependency(on=[later], queue=[add(a=2, b=2)]))
    ids = [blocked.id, pending.id, later.id, pending.id]
    states = change_priority(*ids, priority=7)
    assert [state.id for state in states] == ids[:3]
    assert [state.status for state in states] == ["blocked", "pending", "scheduled"]
    assert {row(handle).priority for handle in (pending, later, blocked)} == {7}


def test_works_that_wait_move_to_another_queue_and_keep_it() -> None:
    work = enqueue(fail(), retry=Retry(attempts=2, base=10))
    change_queue(work.id, queue="mail")
    drain(raises=False)
    assert (row(work).queue, row(work).status) == ("mail", "scheduled")
    trigger(work.id)
    drain(raises=False)
    assert (row(work).queue, row(work).status) == ("mail", "dead")


@pytest.mark.parametrize("status", ["running", "success", "dead", "cancelled"])
def test_what_runs_or_has_ended_is_refused_and_nothing_changes(status: str) -> None:
    waiting, other = enqueue(add(a=1, b=1)), WorkFactory(status=status)
    with pytest.raises(NotWaiting, match=f"but it is {status}") as refusal:
        change_priority(waiting.id, other.id, priority=3)
    assert refusal.value.id == other.id
    with pytest.raises(NotWaiting):
        change_queue(waiting.id, other.id, queue="mail")
    assert (row(waiting).priority, row(waiting).queue) == (0, "default")


def test_unknown_works_and_values_that_cannot_be_used_are_refused() -> None:
    waiting = enqueue(add(a=1, b=1))
    with pytest.raises(WorkNotFound):
        change_priority(waiting.id, "missing", priority=3)
    with pytest.raises(InvalidOption, match="got: 'high'"):
        change_priority(waiting.id, priority="high")  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="queue"):
        change_queue(waiting.id, queue="")
    assert row(waiting).priority == 0


def test_a_work_with_a_label_goes_behind_those_of_its_label() -> None:
    low = enqueue(add(a=1, b=4), fairness="a")  # its turn in its lane is the earliest
    first, second = (enqueue(add(a=1, b=n), fairness="a", priority=5) for n in range(2))
    other = enqueue(add(a=1, b=3), fairness="b", priority=5)
    change_priority(low.id, priority=5)
    assert order() == [first.id, other.id, second.id, low.id]
    keys = [row(handle).sort_key for handle in (second, low)]
    assert keys[0] < keys[1]
    before = row(low).sort_key
    change_priority(low.id, priority=5)  # it stays where it is
    assert row(low).sort_key == before


def test_a_scheduled_work_with_a_label_gets_its_turn_when_it_becomes_pending() -> None:
    first = enqueue(add(a=1, b=1), fairness="a", queue="mail")
    later = enqueue(add(a=1, b=2), fairness="a", delay=5)
    change_queue(later.id, queue="mail")
    trigger(later.id)
    assert order() == [first.id, later.id]


def test_there_is_a_twin_for_async_code() -> None:
    work = enqueue(add(a=1, b=1))
    [state] = async_to_sync(achange_priority)(work.id, priority=4)
    assert (state.id, row(work).priority) == (work.id, 4)
    async_to_sync(achange_queue)(work.id, queue="mail")
    assert row(work).queue == "mail"
