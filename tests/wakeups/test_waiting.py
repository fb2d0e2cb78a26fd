"""Waiting for a result: told of the end, here or by another process, and looking now and then as well."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import connections

from django_ayework import WaitTimeout, cancel, complete, enqueue, enqueue_many
from django_ayework.flow import handles as waiting
from django_ayework.flow.handles import remote_ends
from django_ayework.flow.notify import EndedWorks, ended_works
from django_ayework.rules.notifications import ids_to_text
from tests.app.works import add
from tests.processes import eventually

pytestmark = pytest.mark.django_db(transaction=True)

#: Seconds: a wait that ends by its time is too late for any test.
LONG = 600


@pytest.fixture
def seldom(carrier: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits looks once, and again only if it is told to."""
    monkeypatch.setattr(waiting, "FIRST_PAUSE", 600.0)
    monkeypatch.setattr(waiting, "LONGEST_PAUSE", 600.0)


@pytest.fixture
def brisk(carrier: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits looks twice, by which it has subscribed, and then only if it is told to."""
    left = [0.0]
    monkeypatch.setattr(
        waiting.Wait, "pauses", lambda self, timeout: iter([*left, *[600.0] * 5]) if timeout else iter([None])
    )


def in_thread(act: Any) -> tuple[threading.Thread, list[Any]]:
    got: list[Any] = []

    def run() -> None:
        try:
            got.append(act())
        except Exception as error:
            got.append(error)
        finally:
            connections.close_all()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, got


def waits_for(id: str) -> bool:
    return id in ended_works._by_id


def test_who_waits_is_woken_by_an_end_in_this_process(seldom):
    handle = enqueue(add(a=1, b=2))
    thread, got = in_thread(lambda: handle.result(timeout=LONG))
    eventually(lambda: waits_for(handle.id))
    complete(handle.id, 5)
    thread.join(10)
    assert got == [5]
    assert ended_works._by_id == {}


def test_who_waits_for_a_group_is_woken_by_its_last_member(seldom):
    handles = enqueue_many([add(a=1, b=2), add(a=1, b=2)], together=True)
    thread, got = in_thread(lambda: handles[0].group(timeout=LONG))
    eventually(lambda: waits_for(handles[0].id))
    complete(handles[0].id, 4)
    eventually(lambda: remote_ends._waits == 1)  # it has looked a second time
    assert got == []
    complete(handles[1].id, 5)
    thread.join(10)
    assert got == [5]


def test_a_coroutine_is_woken_too(seldom):
    async def wait_and_complete() -> Any:
        handle = await sync_to_async(enqueue)(add(a=1, b=2))
        task = asyncio.create_task(handle.aresult(timeout=LONG))
        while not waits_for(handle.id):
            await asyncio.sleep(0.01)
        await sync_to_async(complete)(handle.id, 5)
        return await asyncio.wait_for(task, 10)

    assert async_to_sync(wait_and_complete)() == 5
    assert ended_works._by_id == {}


@pytest.mark.parametrize("message", ["the id", "scribble"])
def test_who_waits_is_woken_by_what_another_process_tells(brisk, carrier, monkeypatch, message):
    handle = enqueue(add(a=1, b=2))
    thread, got = in_thread(lambda: handle.result(timeout=LONG))
    eventually(lambda: carrier._listeners.channels() == {"ended"})
    with monkeypatch.context() as patch:
        patch.setattr(ended_works, "publish", lambda ids: None)  # as if it had happened elsewhere
        complete(handle.id, 5)
    assert got == []
    carrier.say("ended", ids_to_text([handle.id], "elsewhere") if message == "the id" else message)
    thread.join(10)
    assert got == [5]
    assert carrier._listeners.channels() == set()


def test_what_is_told_of_others_wakes_nobody(carrier):
    looks: list[bool] = []
    ended_works.subscribe(["a", "b"], looks.append)
    ended_works.publish(["c"])
    assert looks == []
    ended_works.publish(["b", "a"])
    ended_works.publish(None)
    assert looks == [True, False]
    ended_works.unsubscribe(["a", "b"], looks.append)
    ended_works.publish(None)
    assert looks == [True, False]


def test_to_be_told_that_it_is_untrue_costs_a_look_and_the_wait_goes_on(seldom, monkeypatch):
    handle = enqueue(add(a=1, b=2))
    looks: list[object] = []
    look = type(handle)._read
    monkeypatch.setattr(type(handle), "_read", lambda self, *args: (looks.append(None), look(self, *args))[1])
    thread, got = in_thread(lambda: handle.result(timeout=LONG))
    eventually(lambda: waits_for(handle.id))
    ended_works.publish([handle.id])
    eventually(lambda: len(looks) == 2)
    assert got == []
    cancel(handle.id)
    thread.join(10)
    assert type(got[0]).__name__ == "WorkCancelled"


def test_one_subscription_is_shared_and_ends_with_the_last_who_waits(carrier):
    remote_ends.join()
    remote_ends.join()
    assert len(carrier._listeners._by_channel["ended"]) == 1
    remote_ends.leave()
    assert carrier._listeners.channels() == {"ended"}
    remote_ends.leave()
    assert carrier._listeners.channels() == set()


@pytest.mark.django_db(transaction=False)
def test_within_a_transaction_nobody_listens_to_others(carrier, drain):
    handle = enqueue(add(a=1, b=2))
    drain()
    assert handle.result(timeout=1) == 3
    assert carrier._listeners.channels() == set()


def test_a_wait_that_is_not_told_ends_by_looking(carrier):
    handle = enqueue(add(a=1, b=2))
    with pytest.raises(WaitTimeout):
        handle.result(timeout=0.1)
    assert ended_works._by_id == {}
    assert carrier._listeners.channels() == set()


@pytest.mark.parametrize(("is_live", "slowest"), [(False, 0.25), (True, 1.0)])
def test_looks_grow_rare_and_more_so_while_others_are_heard(carrier, is_live, slowest):
    carrier.is_live = is_live
    wait = waiting.Wait(lambda: None)
    wait._is_remote = True
    pauses = wait.pauses(None)
    seen = [next(pauses) for _ in range(30)]
    assert seen[0] == waiting.FIRST_PAUSE
    assert seen == sorted(seen)
    assert seen[-1] == slowest


def test_who_is_told_of_anything_again_and_again_keeps_a_gap(carrier):
    wait = waiting.Wait(lambda: None)
    handle = enqueue(add(a=1, b=2))
    row = waiting_row(handle.id)
    with wait:
        wait.go_on(row)
        ended_works.publish(None)
        assert 0 < wait.gap() <= waiting.LEAST_BETWEEN
        ended_works.publish([handle.id])
        assert wait.gap() == 0


def waiting_row(id: str) -> Any:
    from django_ayework.store.rows import find_row

    return find_row(id)


def test_many_may_come_and_go():
    some = EndedWorks()
    some.subscribe(["a"], print)
    some._reset()
    some.publish(["a"])
    some.unsubscribe(["a"], print)
    assert some._by_id == {}
