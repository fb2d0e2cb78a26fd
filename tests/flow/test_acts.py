"""Acts by hand: completing works, triggering scheduled ones, another priority or another queue."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import async_to_sync

from django_ayework import (
    AlreadyCompleted,
    NotEncodable,
    NotTriggerable,
    NotWaiting,
    Retry,
    WorkNotFound,
    achange_priority,
    achange_queue,
    change_priority,
    change_queue,
    complete,
    completing,
    dependency,
    enqueue,
    trigger,
)
from django_ayework.errors import InvalidInstruction, InvalidOption
from django_ayework.models import Work
from django_ayework.testing import assert_enqueued, drain, enqueued, now
from django_ayework.testing.factories import WorkFactory
from tests.app.works import add, fail
from tests.flow.kit import Oops

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("consistent")]


@pytest.mark.parametrize("options", [{}, {"delay": 3600}])
def test_a_waiting_work_succeeds_once_without_its_handler(options):
    handle = enqueue(add(a=1, b=2), **options)
    complete(handle.id, "approved")
    state = handle.state()
    assert (state.status, state.result, state.completed_by, state.attempt) == ("success", "approved", None, 0)
    assert drain().ran == 0
    with pytest.raises(AlreadyCompleted, match="has ended already: it is success"):
        complete(handle.id, 2)
    assert handle.result() == "approved"


def test_what_waits_for_it_is_decided_and_its_result_is_the_groups_value():
    handle, other = enqueue(add(a=1, b=2)), enqueue(add(a=1, b=2), delay=3600)
    gate, by_hand = (enqueue(dependency(on=[one], queue=[add(a=5, b=5)])) for one in (handle, other))
    complete(handle.id, 7)
    assert gate.state().status == "success"
    assert handle.group() == 7
    assert_enqueued(add, a=5)
    complete(by_hand.id)
    assert by_hand.state().status == "success"
    assert len(enqueued(add, a=5)) == 2


def test_what_cannot_be_completed():
    dead, handle = enqueue(fail(), retry=Retry(attempts=1)), enqueue(add(a=1, b=2), delay=60)
    drain(raises=False)
    with pytest.raises(AlreadyCompleted, match="it is dead"):
        complete(dead.id)
    with pytest.raises(NotEncodable, match=r"the result of 'shop.add'"):
        complete(handle.id, object())
    with pytest.raises(WorkNotFound, match="'nobody'"), completing("nobody"):
        raise AssertionError("the block must not run")
    assert handle.state().status == "scheduled"


def test_the_block_can_say_whatever_a_handler_can():
    handle = enqueue(add(a=1, b=2), delay=3600)
    with completing(handle.id) as ctx:
        assert (ctx.id, ctx.type, ctx.attempt) == (handle.id, "shop.add", 0)
        ctx.queue([add(a=1, b=1), ctx.result("approved")]).next([add(a=2, b=2)])
    drain()
    assert handle.group() == 4
    assert [w.status for w in Work.objects.filter(group_id=handle.group_id)] == ["success"] * 4


@pytest.mark.parametrize(
    ("act", "status"), [(lambda ctx: None, "pending"), (lambda ctx: ctx.void(), "success")]
)
def test_a_block_that_says_nothing_changes_nothing_and_void_completes_with_nothing(act, status):
    handle = enqueue(add(a=1, b=2))
    with completing(handle.id) as ctx:
        act(ctx)
    assert (handle.state().status, handle.state().result) == (status, None)


def test_an_error_in_the_block_undoes_everything():
    handle = enqueue(add(a=1, b=2))
    with pytest.raises(Oops), completing(handle.id) as ctx:
        enqueue(add(a=8, b=8))
        ctx.result(1)
        raise Oops
    refused = pytest.raises(InvalidInstruction, match=r"expected one instruction .* got 2")
    with refused, completing(handle.id) as ctx:
        ctx.result(1)
        ctx.result(2)
    assert handle.state().status == "pending"
    assert Work.objects.count() == 1


# --- trigger --------------------------------------------------------------------------------------------


def test_scheduled_works_run_now_and_their_states_come_in_the_order_given_each_once():
    first, second = (enqueue(add(a=1, b=n), delay=3600) for n in range(2))
    assert drain().ran == 0
    states = trigger(second.id, first.id, second.id)
    assert [(state.id, state.status) for state in states] == [(second.id, "pending"), (first.id, "pending")]
    assert all(state.start_at <= now() for state in states)
    assert trigger() == []
    assert drain().succeeded == 2


def test_triggering_is_all_or_nothing():
    scheduled, pending = enqueue(add(a=1, b=1), delay=60), enqueue(add(a=1, b=2))
    with pytest.raises(NotTriggerable, match=f"{pending.id} to be scheduled, but it is pending") as refusal:
        trigger(scheduled.id, pending.id)
    assert refusal.value.id == pending.id
    with pytest.raises(WorkNotFound, match="'nobody'"):
        trigger(pending.id, "nobody")
    assert scheduled.state().status == "scheduled"


# --- another priority or queue --------------------------------------------------------------------------


def row(handle: Any) -> Work:
    return Work.objects.get(id=handle.id)


def order() -> list[str]:
    """The ids of the pending works in the order of claiming."""
    pending = Work.objects.filter(status="pending")
    return [work.id for work in pending.order_by("-priority", "sort_key", "run_at", "id")]


def test_works_that_wait_get_another_priority_and_the_states_come_in_order():
    pending, later = enqueue(add(a=1, b=1)), enqueue(add(a=1, b=1), delay=60)
    blocked = enqueue(dependency(on=[later], queue=[add(a=2, b=2)]))
    ids = [blocked.id, pending.id, later.id, pending.id]
    states = change_priority(*ids, priority=7)
    assert [state.id for state in states] == ids[:3]
    assert [state.status for state in states] == ["blocked", "pending", "scheduled"]
    assert {row(handle).priority for handle in (pending, later, blocked)} == {7}


def test_works_that_wait_move_to_another_queue_and_keep_it():
    work = enqueue(fail(), retry=Retry(attempts=2, base=10))
    change_queue(work.id, queue="mail")
    drain(raises=False)
    assert (row(work).queue, row(work).status) == ("mail", "scheduled")
    trigger(work.id)
    drain(raises=False)
    assert (row(work).queue, row(work).status) == ("mail", "dead")


@pytest.mark.parametrize("status", ["running", "success", "dead", "cancelled"])
def test_what_runs_or_has_ended_is_refused_and_nothing_changes(status):
    waiting, other = enqueue(add(a=1, b=1)), WorkFactory(status=status)
    with pytest.raises(NotWaiting, match=f"but it is {status}") as refusal:
        change_priority(waiting.id, other.id, priority=3)
    assert refusal.value.id == other.id
    with pytest.raises(NotWaiting):
        change_queue(waiting.id, other.id, queue="mail")
    assert (row(waiting).priority, row(waiting).queue) == (0, "default")
    other.delete()  # which a factory has made, without a worker or a reason


def test_unknown_works_and_values_that_cannot_be_used_are_refused():
    waiting = enqueue(add(a=1, b=1))
    with pytest.raises(WorkNotFound):
        change_priority(waiting.id, "missing", priority=3)
    with pytest.raises(InvalidOption, match="got: 'high'"):
        change_priority(waiting.id, priority="high")  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="queue"):
        change_queue(waiting.id, queue="")
    assert row(waiting).priority == 0


def test_a_work_with_a_label_goes_behind_those_of_its_label():
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


def test_a_scheduled_work_with_a_label_gets_its_turn_when_it_becomes_pending():
    first = enqueue(add(a=1, b=1), fairness="a", queue="mail")
    later = enqueue(add(a=1, b=2), fairness="a", delay=5)
    change_queue(later.id, queue="mail")
    trigger(later.id)
    assert order() == [first.id, later.id]


def test_there_is_a_twin_for_async_code():
    work = enqueue(add(a=1, b=1))
    [state] = async_to_sync(achange_priority)(work.id, priority=4)
    assert (state.id, row(work).priority) == (work.id, 4)
    async_to_sync(achange_queue)(work.id, queue="mail")
    assert row(work).queue == "mail"
