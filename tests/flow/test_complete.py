"""Completing works without a worker, and triggering scheduled ones."""

from __future__ import annotations

import pytest
from django.db import transaction

from django_ayework import (
    AlreadyCompleted,
    NotEncodable,
    NotTriggerable,
    Retry,
    WorkNotFound,
    complete,
    completing,
    dependency,
    enqueue,
    trigger,
)
from django_ayework.errors import InvalidInstruction
from django_ayework.flow.settle import Settlement, Success, settle
from django_ayework.models import Work
from django_ayework.testing import assert_enqueued, drain, enqueued, now
from tests.app.works import add, fail
from tests.flow.kit import Oops
from tests.races.rivals import claim_all

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("consistent")]


@pytest.mark.parametrize("options", [{}, {"delay": 3600}])
def test_a_waiting_work_succeeds_once_without_its_handler(options):
    handle = enqueue(add(a=1, b=2), **options)
    with pytest.raises(Oops), transaction.atomic():
        complete(handle.id, 5)
        raise Oops
    assert handle.state().status == ("scheduled" if options else "pending"), "the transaction was rolled back"
    complete(handle.id, "approved")
    state = handle.state()
    assert (state.status, state.result, state.completed_by, state.attempt) == ("success", "approved", None, 0)
    assert drain().ran == 0
    with pytest.raises(AlreadyCompleted, match="has ended already: it is success"):
        complete(handle.id, 2)
    assert handle.result() == "approved"


def test_a_running_work_is_completed_and_its_late_result_refused():
    handle = enqueue(add(a=1, b=2))
    [row] = claim_all().values()
    complete(handle.id, 99)
    assert settle([Settlement(row, Success("3"))]).refused == [handle.id]
    assert handle.result() == 99


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
    with (
        pytest.raises(InvalidInstruction, match=r"expected one instruction .* got 2"),
        completing(handle.id) as ctx,
    ):
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
