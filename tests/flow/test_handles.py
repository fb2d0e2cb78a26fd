"""Handles: follow a work, and wait for its end and its group's."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction

from django_ayework import (
    Abort,
    Context,
    Status,
    WaitInTransaction,
    WaitTimeout,
    WorkFailed,
    WorkNotFound,
    WorkState,
    enqueue,
    enqueue_many,
    get_handle,
    retry,
    work,
)
from django_ayework.testing import enqueued
from tests.app.works import add, fail

STATE_FIELDS = """
    id type queue status attempt attempts result error last_error reason queued_at start_at started_at
    ended_at priority fairness retry timeout deadline group_id chain_id chain_index parent dependents
    blockers unit completed_by worker progress
"""


@work(name="t.handles.give_up")
def give_up():
    raise Abort("no card")


@work(name="t.handles.parent")
def parent(ctx: Context):
    return ctx.queue([add(a=1, b=1), ctx.result("mine")])


@work(name="t.handles.nothing")
def nothing() -> None: ...


def test_a_state_has_exactly_the_documented_fields() -> None:
    assert [field.name for field in fields(WorkState)] == STATE_FIELDS.split()


@pytest.mark.django_db
def test_the_state_of_a_success(drain: Any) -> None:
    handle = enqueue(add(a=1, b=2))
    drain()
    state = handle.state()
    assert state is not None
    assert state.status is Status.SUCCESS
    assert (state.result, state.attempt, state.completed_by) == (3, 1, "drain")
    assert (state.error, state.last_error, state.reason, state.worker) == (None, None, None, None)
    assert state.started_at and state.ended_at and state.started_at <= state.ended_at
    assert state.queued_at.utcoffset() is not None


@pytest.mark.django_db
def test_the_state_of_a_dead_work(drain: Any) -> None:
    handle = enqueue(give_up())
    drain()
    state = handle.state()
    assert state is not None
    assert (state.status, state.reason, state.error, state.last_error) == (
        Status.DEAD,
        "aborted",
        "no card",
        "no card",
    )
    assert state.result is None
    assert state.completed_by == "drain"


@pytest.mark.django_db
def test_the_state_of_a_child_names_its_parent(drain: Any) -> None:
    handle = enqueue(parent())
    drain()
    child = enqueued(add)[0]
    assert (child.parent, child.group_id, child.chain_id) == (handle.id, handle.id, child.id)


@pytest.mark.django_db
def test_an_unknown_id_has_no_state() -> None:
    handle = get_handle("nowhere")
    assert handle.state() is None
    with pytest.raises(WorkNotFound, match="no work has the id 'nowhere'") as raised:
        handle.group(timeout=0)
    assert raised.value.id == "nowhere"


@pytest.mark.django_db
def test_handles_of_one_work_are_equal() -> None:
    handle = enqueue(add(a=1, b=2))
    assert handle == get_handle(handle.id)
    assert len({handle, get_handle(handle.id), get_handle("other")}) == 2
    assert handle != handle.id
    assert repr(handle) == f"<Handle {handle.id}>"
    assert handle.chain_id == handle.id


@pytest.mark.django_db
def test_result_of_a_dead_work_raises_its_error_and_id_and_group_gives_none(drain: Any) -> None:
    handle = enqueue(give_up())
    drain()
    with pytest.raises(WorkFailed, match="no card") as raised:
        handle.result(timeout=0)
    assert raised.value.id == handle.id
    assert handle.group(timeout=0) is None


@pytest.mark.django_db
def test_a_delegating_work_has_no_result_of_its_own(drain: Any) -> None:
    handle = enqueue(parent())
    drain()
    assert handle.result(timeout=0) is None
    assert handle.group(timeout=0) == 2


@pytest.mark.django_db
def test_a_work_without_a_value_gives_none(drain: Any) -> None:
    handle = enqueue(nothing())
    drain()
    assert (handle.result(timeout=0), handle.group(timeout=0)) == (None, None)


@pytest.mark.django_db(transaction=True)
def test_waiting_ends_with_the_timeout() -> None:
    handle = enqueue(add(a=1, b=2))
    for wait in (handle.result, handle.group):
        with pytest.raises(WaitTimeout, match=r"to end within 0\.01 seconds") as raised:
            wait(timeout=0.01)
        assert raised.value.id == handle.id
    assert isinstance(raised.value, TimeoutError)


@pytest.mark.django_db(transaction=True)
def test_a_wait_that_was_too_short_says_how_things_stand(drain: Any) -> None:
    handle = enqueue(parent())
    with pytest.raises(
        WaitTimeout, match=rf"within 0 seconds: it is pending; explain\('{handle.id}'\) says why\.$"
    ):
        get_handle(handle.id).group(timeout=timedelta(0))
    drain(limit=1)
    with pytest.raises(
        WaitTimeout, match=r"it is success, but others of its group or chain have not ended\.$"
    ):
        get_handle(handle.id).group(timeout=0)


@pytest.mark.django_db(transaction=True)
def test_waiting_sees_the_end(running_worker: Any) -> None:
    with running_worker(concurrency=2):
        assert enqueue(add(a=1, b=2)).result(timeout=20) == 3
        assert enqueue(parent()).group(timeout=20) == 2


@pytest.mark.django_db(transaction=True)
def test_the_async_twins_wait_too(running_worker: Any) -> None:
    async def follow() -> tuple[Any, ...]:
        handle = await parent.aenqueue()
        group = await handle
        state = await handle.astate()
        with pytest.raises(WaitTimeout):
            await get_handle(late.id).aresult(timeout=0.01)
        return group, await handle.aresult(timeout=20), await handle.agroup(timeout=20), state

    late = enqueue(add(a=1, b=1), delay=60)
    with running_worker(concurrency=2):
        group, result, again, state = async_to_sync(follow)()
    assert (group, result, again) == (2, None, 2)
    assert state is not None and state.status == "success"


@pytest.mark.django_db(transaction=True)
def test_waiting_for_a_work_of_this_transaction_is_refused_at_once() -> None:
    with transaction.atomic():
        handle = enqueue(add(a=1, b=2))
        [second, _] = enqueue_many([add(a=1, b=2), add(a=3, b=4)])
        for wait in (handle.result, handle.group, second.result, get_handle(handle.id).result):
            with pytest.raises(WaitInTransaction, match="wait after the atomic block"):
                wait()
    with pytest.raises(WaitTimeout):
        handle.result(timeout=0)


@pytest.mark.django_db(transaction=True)
def test_a_committed_work_can_be_waited_for_in_a_transaction() -> None:
    with transaction.atomic():
        handle = enqueue(add(a=1, b=2))
    with transaction.atomic(), pytest.raises(WaitTimeout):
        handle.result(timeout=0)


@pytest.mark.django_db(transaction=True)
def test_a_rollback_before_does_not_confuse_waiting_in_a_transaction() -> None:
    with transaction.atomic():
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            enqueue(add(a=0, b=0))
            _ = 1 / 0
        handle = enqueue(add(a=1, b=2))
    with transaction.atomic(), pytest.raises(WaitTimeout):
        handle.result(timeout=0)


@pytest.mark.django_db(transaction=True)
def test_a_request_queued_again_after_a_rollback_can_be_waited_for() -> None:
    request = add(a=1, b=2)
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        enqueue(request)
        _ = 1 / 0
    handle = enqueue(request)
    with pytest.raises(WaitTimeout):
        handle.result(timeout=0)
    with transaction.atomic(), pytest.raises(WaitTimeout):
        handle.result(timeout=0)


@pytest.mark.django_db(transaction=True)
def test_a_decorated_function_is_a_new_transaction_each_time() -> None:
    @transaction.atomic
    def in_transaction(act: Any) -> Any:
        return act()

    handle = in_transaction(lambda: enqueue(add(a=1, b=2)))
    with pytest.raises(WaitTimeout):
        in_transaction(lambda: handle.result(timeout=0))


@pytest.mark.django_db(transaction=True)
def test_a_work_that_ended_in_this_transaction_needs_no_waiting(drain: Any) -> None:
    with transaction.atomic():
        handle = enqueue(add(a=1, b=2))
        drain()
        assert handle.result() == 3


@pytest.mark.django_db
def test_what_is_not_due_cannot_be_waited_for_in_a_test_after_drain_either(drain: Any) -> None:
    handle = enqueue(add(a=1, b=2), delay=60)
    drain()
    with pytest.raises(WaitInTransaction):
        handle.result()


@pytest.mark.django_db
def test_waiting_for_a_work_whose_transaction_was_rolled_back() -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        handle = enqueue(add(a=1, b=2))
        _ = 1 / 0
    for wait in (handle.result, handle.group):
        with pytest.raises(WorkNotFound, match="its transaction was rolled back"):
            wait(timeout=0)


@pytest.mark.django_db
def test_the_handle_of_a_retry_knows_the_group(drain: Any) -> None:
    handles = enqueue_many([add(a=1, b=2), give_up()], together=True)
    drain()
    assert retry(handles[1].id).group_id == handles[0].id


@pytest.mark.django_db
def test_a_wait_takes_no_negative_time() -> None:
    handle = enqueue(fail())
    with pytest.raises(ValueError, match="expected timeout to be 0 seconds or more"):
        handle.result(timeout=-1)
