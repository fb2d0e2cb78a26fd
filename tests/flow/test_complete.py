"""Completing a work without a worker."""

import pytest
from django.db import transaction

from django_ayework import (
    AlreadyCompleted,
    Context,
    NotEncodable,
    Retry,
    WorkNotFound,
    complete,
    completing,
    dependency,
    enqueue,
    work,
)
from django_ayework.errors import InvalidInstruction
from django_ayework.flow.settle import Settlement, Success, settle
from django_ayework.models import Work
from django_ayework.testing import assert_enqueued, drain
from tests.app.works import add, fail
from tests.invariants import assert_consistent
from tests.races.rivals import claim_all

pytestmark = pytest.mark.django_db


@work(name="t.complete.auto_reject")
def auto_reject(ctx: Context, request: str):
    return ctx.result("rejected")


@pytest.mark.parametrize("options", [{}, {"delay": 3600}])
def test_a_waiting_work_succeeds_without_its_handler(options):
    handle = enqueue(auto_reject(request="r-1"), **options)

    complete(handle.id, "approved")

    state = handle.state()
    assert (state.status, state.result, state.completed_by, state.attempt) == ("success", "approved", None, 0)
    assert drain().ran == 0


def test_a_running_work_is_completed_and_its_late_result_refused():
    handle = enqueue(add(a=1, b=2))
    [row] = claim_all().values()

    complete(handle.id, 99)

    assert settle([Settlement(row, Success("3"))]).refused == [handle.id]
    assert handle.result() == 99


def test_a_blocked_gate_opens():
    member = enqueue(add(a=1, b=2), delay=3600)
    gate = enqueue(dependency(on=[member], queue=[add(a=5, b=5)]))

    complete(gate.id)

    assert gate.state().status == "success"
    assert_enqueued(add, a=5)
    assert_consistent()


def test_its_waiters_are_decided_and_its_result_is_the_groups_value():
    handle = enqueue(add(a=1, b=2))
    gate = enqueue(dependency(on=[handle], queue=[add(a=5, b=5)]))

    complete(handle.id, 7)

    assert gate.state().status == "success"
    assert handle.group() == 7
    drain()
    assert_consistent()


def test_a_second_completion_is_refused():
    handle = enqueue(add(a=1, b=2))
    complete(handle.id, 1)

    with pytest.raises(AlreadyCompleted, match="has ended already: it is success"):
        complete(handle.id, 2)
    assert handle.result() == 1


def test_a_dead_work_cannot_be_completed():
    handle = enqueue(fail(), retry=Retry(attempts=1))
    drain(raises=False)
    with pytest.raises(AlreadyCompleted, match="it is dead"):
        complete(handle.id)


def test_an_unknown_work_is_told_so():
    with pytest.raises(WorkNotFound, match="'nobody'"), completing("nobody"):
        raise AssertionError("the block must not run")


def test_the_block_can_say_whatever_a_handler_can():
    handle = enqueue(auto_reject(request="r-2"), delay=3600)

    with completing(handle.id) as ctx:
        assert (ctx.id, ctx.type, ctx.attempt) == (handle.id, "t.complete.auto_reject", 0)
        ctx.queue([add(a=1, b=1), ctx.result("approved")]).next([add(a=2, b=2)])
    drain()

    assert handle.group() == 4
    assert [w.status for w in Work.objects.filter(group_id=handle.group_id)] == ["success"] * 4
    assert_consistent()


def test_a_block_that_says_nothing_changes_nothing():
    handle = enqueue(add(a=1, b=2))
    with completing(handle.id):
        pass
    assert handle.state().status == "pending"


def test_void_completes_with_nothing():
    handle = enqueue(add(a=1, b=2))
    with completing(handle.id) as ctx:
        ctx.void()
    assert (handle.result(), handle.state().status) == (None, "success")


def test_two_instructions_side_by_side_are_refused():
    handle = enqueue(add(a=1, b=2))
    with (
        pytest.raises(InvalidInstruction, match=r"expected one instruction .* got 2"),
        completing(handle.id) as ctx,
    ):
        ctx.result(1)
        ctx.result(2)
    assert handle.state().status == "pending"


def test_an_error_in_the_block_undoes_everything():
    handle = enqueue(add(a=1, b=2))
    with pytest.raises(RuntimeError), completing(handle.id) as ctx:
        enqueue(add(a=8, b=8))
        ctx.result(1)
        raise RuntimeError
    assert handle.state().status == "pending"
    assert Work.objects.count() == 1


def test_a_result_that_cannot_be_stored_is_refused():
    handle = enqueue(add(a=1, b=2))
    with pytest.raises(NotEncodable, match=r"the result of 'shop.add'"):
        complete(handle.id, object())
    assert handle.state().status == "pending"


def test_it_joins_the_callers_transaction():
    handle = enqueue(add(a=1, b=2))
    with pytest.raises(RuntimeError), transaction.atomic():
        complete(handle.id, 5)
        raise RuntimeError
    assert handle.state().status == "pending"
