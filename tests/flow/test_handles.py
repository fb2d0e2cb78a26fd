"""Handles: follow a work, and wait for its end and its group's."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction

from django_ayework import (
    Context,
    Status,
    WaitInTransaction,
    WaitTimeout,
    WorkNotFound,
    enqueue,
    enqueue_many,
    get_handle,
    retry,
    work,
)
from django_ayework.errors import InvalidWorkId
from django_ayework.testing import drain, enqueued, running_worker
from tests.app.works import add, fail, pay
from tests.flow.kit import ONCE

pytestmark = pytest.mark.django_db


@work(name="t.handles.parent")
def parent(ctx: Context):
    return ctx.queue([add(a=1, b=1), ctx.result("mine")])


def still_open(handle: Any) -> bool:
    """Tell whether a wait for the result runs out of time rather than being refused."""
    with pytest.raises(WaitTimeout):
        handle.result(timeout=0)
    return True


def roll_back(request: Any) -> Any:
    """Queue a work in a transaction that is rolled back; return its handle."""
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        handle = enqueue(request)
        _ = 1 / 0
    return handle


def test_state_result_and_group_of_a_success():
    handle, no_value = enqueue(add(a=1, b=2)), enqueue(pay(order_id=0))
    drain()
    state = handle.state()
    assert state.status is Status.SUCCESS
    assert (state.result, state.attempt, state.completed_by) == (3, 1, "drain")
    assert (state.error, state.last_error, state.reason, state.worker) == (None, None, None, None)
    assert state.started_at and state.ended_at and state.started_at <= state.ended_at
    assert state.queued_at.utcoffset() is not None
    assert (no_value.result(timeout=0), no_value.group(timeout=0)) == (None, None)


def test_a_delegating_work_has_no_result_of_its_own_and_is_the_parent_of_its_children():
    handle = enqueue(parent())
    drain()
    child = enqueued(add)[0]
    assert (child.parent, child.group_id, child.chain_id) == (handle.id, handle.id, child.id)
    assert (handle.result(timeout=0), handle.group(timeout=0)) == (None, 2)


def test_handles_of_one_work_are_equal():
    handle = enqueue(add(a=1, b=2))
    assert handle == get_handle(handle.id)
    assert len({handle, get_handle(handle.id), get_handle("other")}) == 2
    assert handle != handle.id
    assert repr(handle) == f"<Handle {handle.id}>"
    assert handle.chain_id == handle.id


@pytest.mark.parametrize("id", [None, 5, "", "two words"])
def test_what_is_no_id_has_no_handle(id: object) -> None:
    with pytest.raises(InvalidWorkId, match="expected a work id to be"):
        get_handle(id)


def test_the_handle_of_a_retry_knows_the_group():
    handles = enqueue_many([add(a=1, b=2), fail()], together=True, retry=ONCE)
    drain(raises=False)
    assert retry(handles[1].id).group_id == handles[0].id


def test_what_does_not_exist_has_no_state_and_cannot_be_waited_for():
    assert get_handle("nowhere").state() is None
    lost = roll_back(add(a=1, b=2))
    for handle, message in (
        (get_handle("nowhere"), "no work has the id 'nowhere'"),
        (lost, "was rolled back"),
    ):
        for wait in (handle.result, handle.group):
            with pytest.raises(WorkNotFound, match=message) as raised:
                wait(timeout=0)
            assert raised.value.id == handle.id


# --- waiting --------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_waiting_ends_with_the_timeout_and_says_how_things_stand():
    handle = enqueue(parent())
    for wait in (handle.result, handle.group):
        with pytest.raises(WaitTimeout, match=r"to end within 0\.01 seconds") as raised:
            wait(timeout=0.01)
        assert raised.value.id == handle.id
    assert isinstance(raised.value, TimeoutError)
    state = rf"within 0 seconds: it is pending; explain\('{handle.id}'\) says why\.(\n|$)"
    with pytest.raises(WaitTimeout, match=state):
        get_handle(handle.id).group(timeout=timedelta(0))
    drain(limit=1)
    with pytest.raises(
        WaitTimeout, match=r"it is success, but others of its group or chain have not ended\.(\n|$)"
    ):
        get_handle(handle.id).group(timeout=0)
    with pytest.raises(ValueError, match="expected timeout to be 0 seconds or more"):
        handle.result(timeout=-1)


@pytest.mark.django_db(transaction=True)
def test_waiting_sees_the_end():
    async def follow() -> tuple[Any, ...]:
        handle = await parent.aenqueue()
        group = await handle
        state = await handle.astate()
        with pytest.raises(WaitTimeout):
            await get_handle(late.id).aresult(timeout=0.01)
        return group, await handle.aresult(timeout=20), await handle.agroup(timeout=20), state.status

    late = enqueue(add(a=1, b=1), delay=60)
    with running_worker(concurrency=2):
        assert enqueue(add(a=1, b=2)).result(timeout=20) == 3
        assert enqueue(parent()).group(timeout=20) == 2
        assert async_to_sync(follow)() == (2, None, 2, "success")


@pytest.mark.django_db(transaction=True)
def test_waiting_for_a_work_of_this_transaction_is_refused_at_once():
    with transaction.atomic():
        handle = enqueue(add(a=1, b=2))
        [second, _] = enqueue_many([add(a=1, b=2), add(a=3, b=4)])
        for wait in (handle.result, handle.group, second.result, get_handle(handle.id).result):
            with pytest.raises(WaitInTransaction, match="wait after the atomic block"):
                wait()
    with pytest.raises(WaitTimeout):
        handle.result(timeout=0)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("rolled_back", ["nothing", "another", "the same"])
def test_a_committed_work_can_be_waited_for_in_a_transaction(rolled_back):
    request = add(a=1, b=2)
    if rolled_back == "the same":
        roll_back(request)
    with transaction.atomic():
        if rolled_back == "another":
            roll_back(add(a=0, b=0))
        handle = enqueue(request)
    assert still_open(handle)
    with transaction.atomic():
        assert still_open(handle)


@pytest.mark.django_db(transaction=True)
def test_a_decorated_function_is_a_new_transaction_each_time():
    @transaction.atomic
    def in_transaction(act: Any) -> Any:
        return act()

    handle = in_transaction(lambda: enqueue(add(a=1, b=2)))
    assert in_transaction(lambda: still_open(handle))


@pytest.mark.django_db(transaction=True)
def test_a_work_that_ended_in_this_transaction_needs_no_waiting_and_one_that_is_not_due_is_refused():
    with transaction.atomic():
        handle, later = enqueue(add(a=1, b=2)), enqueue(add(a=1, b=2), delay=60)
        drain()
        assert handle.result() == 3
        with pytest.raises(WaitInTransaction):
            later.result()
