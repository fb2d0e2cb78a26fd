"""Handles follow a work, and wait for its end and its group's; contexts tell a handler about itself."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction

from django_ayework import Context, Defer, Status, enqueue, enqueue_many, get_handle, retry, work
from django_ayework.errors import InvalidWorkId, WaitInTransaction, WaitTimeout, WorkNotFound
from django_ayework.models import Work
from django_ayework.testing import drain, enqueued, now, perform, running_worker, time_travel
from tests.app.works import add, fail, pay
from tests.flow.kit import ONCE
from tests.processes import eventually

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


def test_state_result_and_group_of_a_success_and_of_a_work_that_delegates():
    handle, no_value, delegating = enqueue(add(a=1, b=2)), enqueue(pay(order_id=0)), enqueue(parent())
    drain()
    state = handle.state()
    assert state.status is Status.SUCCESS
    assert (state.result, state.attempt, state.completed_by) == (3, 1, "drain")
    assert (state.error, state.last_error, state.reason, state.worker) == (None, None, None, None)
    assert state.started_at and state.ended_at and state.started_at <= state.ended_at
    assert state.queued_at.utcoffset() is not None
    assert (no_value.result(timeout=0), no_value.group(timeout=0)) == (None, None)
    child = enqueued(add)[1]
    assert (child.parent, child.group_id, child.chain_id) == (delegating.id, delegating.id, child.id)
    assert (delegating.result(timeout=0), delegating.group(timeout=0)) == (None, 2)


def test_handles_of_one_work_are_equal_and_what_is_no_id_has_none():
    first, handle = enqueue_many([add(a=1, b=2), fail()], together=True, retry=ONCE)
    assert handle == get_handle(handle.id)
    assert len({handle, get_handle(handle.id), get_handle("other")}) == 2
    assert handle != handle.id
    assert repr(handle) == f"<Handle {handle.id}>"
    assert handle.chain_id == handle.id
    for id in (None, 5, "", "two words"):
        with pytest.raises(InvalidWorkId, match=r"expected (a work id to be|the id of a work as a text)"):
            get_handle(id)
    drain(raises=False)
    assert retry(handle.id).group_id == first.id


def test_what_does_not_exist_has_no_state_and_cannot_be_waited_for():
    unknown, lost = get_handle("nowhere"), roll_back(add(a=1, b=2))
    assert unknown.state() is None
    for handle, message in ((unknown, "no work has the id 'nowhere'"), (lost, "was rolled back")):
        for wait in (handle.result, handle.group):
            with pytest.raises(WorkNotFound, match=message) as raised:
                wait(timeout=0)
            assert raised.value.id == handle.id


# --- waiting --------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_waiting_ends_with_the_timeout_and_says_how_things_stand():
    handle = enqueue(parent())
    for wait in (handle.result, handle.group):
        with pytest.raises(WaitTimeout, match=r"to end within 0\.01 s:") as raised:
            wait(timeout=0.01)
        assert raised.value.id == handle.id
    assert isinstance(raised.value, TimeoutError)
    state = rf"within 0 s: it is pending; explain\('{handle.id}'\) says why\.(\n|$)"
    with pytest.raises(WaitTimeout, match=state):
        get_handle(handle.id).group(timeout=timedelta(0))
    drain(limit=1)
    state = rf"chain have not ended; manage\.py ayework_graph {handle.id} says which, and why\."
    with pytest.raises(WaitTimeout, match=state):
        get_handle(handle.id).group(timeout=0)
    with pytest.raises(ValueError, match="expected timeout to be 0 seconds or more"):
        handle.result(timeout=-1)


@pytest.mark.django_db(transaction=True)
def test_waiting_sees_the_end_and_progress_shows_while_a_work_runs():
    seen = threading.Event()

    @work(name="t.context.progress_live")
    def progresses(ctx: Context) -> None:
        ctx.progress(3, 10)
        seen.wait(20)

    async def follow() -> tuple[Any, ...]:
        handle = await parent.aenqueue()
        group = await handle
        state = await handle.astate()
        with pytest.raises(WaitTimeout):
            await get_handle(late.id).aresult(timeout=0.01)
        chained = await add.aenqueue(a=1, b=2)
        assert await chained.achain(timeout=20) == 3
        return group, await handle.aresult(timeout=20), await handle.agroup(timeout=20), state.status

    late = enqueue(add(a=1, b=1), delay=60)
    with running_worker(concurrency=2):
        assert enqueue(add(a=1, b=2)).result(timeout=20) == 3
        assert enqueue(parent()).group(timeout=20) == 2
        assert async_to_sync(follow)() == (2, None, 2, "success")
        handle = enqueue(progresses())
        eventually(lambda: handle.state().progress)
        state = handle.state()
        seen.set()
    assert (state.status, state.progress) == ("running", {"done": 3, "total": 10, "note": ""})


@pytest.mark.django_db(transaction=True)
def test_waiting_for_a_work_of_this_transaction_is_refused_at_once():
    with transaction.atomic():
        handle, later = enqueue(add(a=1, b=2)), enqueue(add(a=1, b=2), delay=60)
        [second, _] = enqueue_many([add(a=1, b=2), add(a=3, b=4)])
        for wait in (handle.result, handle.group, second.result, get_handle(handle.id).result):
            with pytest.raises(WaitInTransaction, match="wait after the atomic block"):
                wait()
        drain()
        assert handle.result() == 3, "it has ended in this transaction"
        with pytest.raises(WaitInTransaction):
            later.result()
    assert still_open(later)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("rolled_back", ["nothing", "another", "the same"])
def test_a_committed_work_can_be_waited_for_in_a_transaction(rolled_back):
    @transaction.atomic
    def in_transaction(act: Any) -> Any:
        return act()

    request = add(a=1, b=2)
    if rolled_back == "the same":
        roll_back(request)
    with transaction.atomic():
        if rolled_back == "another":
            roll_back(add(a=0, b=0))
        handle = enqueue(request)
    decorated = in_transaction(lambda: enqueue(add(a=1, b=2)))
    with transaction.atomic():
        assert still_open(handle)
    assert still_open(handle)
    assert in_transaction(lambda: still_open(decorated)), "each call is a new transaction"


# --- contexts -------------------------------------------------------------------------------------------


def test_a_handler_knows_its_identity():
    deadline = now() + timedelta(hours=1)
    seen: list[Any] = []

    @work(name="t.context.child")
    def child(ctx: Context) -> None:
        seen.append((ctx.id, ctx.type, ctx.group_id, ctx.chain_id, ctx.attempt, ctx.parent, ctx.deadline))
        seen.append((ctx.dependents, ctx.last_error, ctx.signal.aborted, ctx.signal.reason))

    handle = enqueue(work(name="t.context.parent")(lambda ctx: ctx.queue([child()], deadline=deadline))())
    drain()
    id = Work.objects.get(type="t.context.child").id
    identity = (id, "t.context.child", handle.id, id, 1, handle.id, deadline)
    assert seen == [identity, ((), None, False, None)]


KEYS = ["", " ", "a", "a ", "A", "ä", "a\x00", "\ud800", "claim:a", "x" * 5000, "x" * 5000 + "y"]


def test_a_key_is_claimed_once_a_day_and_any_text_is_a_key_of_its_own():
    claims = work(name="t.context.claims")(lambda ctx, keys: [ctx.claim(key) for key in keys])
    assert perform(claims(keys=[*KEYS, *KEYS])).result == [True] * len(KEYS) + [False] * len(KEYS)
    time_travel(timedelta(hours=23))
    assert perform(claims(keys=["a"])).result == [False]
    time_travel(timedelta(hours=2))
    assert perform(claims(keys=["a"])).result == [True]


def test_states_come_in_the_order_asked_and_none_for_the_unknown():
    good, bad = enqueue(add(a=1, b=2)), enqueue(fail(), retry=ONCE)
    drain(raises=False)
    late = enqueue(add(a=1, b=2), delay=60)

    @work(name="t.context.async")
    async def asks_async(ctx: Context) -> list[Any]:
        return [await ctx.aclaim("k"), await ctx.aclaim("k"), await ctx.astates([good.id, "nowhere"])]

    asked = [late.id, "nowhere", bad.id, good.id]
    asks = work(name="t.context.states")(lambda ctx: ctx.states([*asked, ctx.id, good.id]))
    handle, twin = enqueue(asks()), enqueue(asks_async())
    drain()
    assert handle.result(timeout=0) == ["scheduled", None, "dead", "success", "running", "success"]
    assert twin.result(timeout=0) == [True, False, ["success", None]]


@pytest.mark.parametrize(
    ("asks", "message"),
    [
        (lambda ctx: ctx.claim(7), "with a text as the key, got: 7"),
        (lambda ctx: ctx.states([get_handle("a")]), "the id of a work as a text, got: <Handle a>"),
        (lambda ctx: ctx.progress("3/4"), "with done as a number, got: '3/4'"),
        (lambda ctx: ctx.progress(None), "with done as a number, got: None"),
        (lambda ctx: ctx.progress(3, "4"), "with total as a number, got: '4'"),
    ],
)
def test_what_is_no_text_or_number_fails_the_attempt(asks, message):
    handle = enqueue(work(name="t.context.wrong")(lambda ctx: asks(ctx))())
    with pytest.raises((TypeError, InvalidWorkId), match=message):
        drain()
    assert handle.state().progress is None


def test_progress_shows_in_the_state():
    @work(name="t.context.progress")
    def progresses(ctx: Context) -> None:
        ctx.progress(1, 10)
        ctx.progress(3, 10, "third page")
        raise Defer(delay=60)

    handle = enqueue(progresses())
    drain()
    assert handle.state().progress == {"done": 3, "total": 10, "note": "third page"}
