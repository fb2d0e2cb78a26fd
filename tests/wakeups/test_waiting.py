"""Waiting for a result: by messages of this process or another, and by reads now and then."""

import asyncio
import threading
from queue import SimpleQueue

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import connections

from django_ayework import WaitTimeout, complete, enqueue, enqueue_many
from django_ayework.flow import handles as waiting
from django_ayework.flow.handles import remote_ends
from django_ayework.flow.notify import ended_works
from django_ayework.rules.notifications import ids_to_text
from django_ayework.store.rows import find_row
from tests.app.works import add
from tests.marks import each_database
from tests.processes import eventually

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendors("sqlite")]

#: Seconds: a wait that ends by its time is too late for any test.
LONG = 600


@pytest.fixture
def read_once(carrier, monkeypatch):
    """A wait reads once, and again only by a message."""
    monkeypatch.setattr(waiting, "FIRST_PAUSE", 600.0)
    monkeypatch.setattr(waiting, "LONGEST_PAUSE", 600.0)


@pytest.fixture
def read_twice(carrier, monkeypatch):
    """A wait reads twice, by which it has subscribed, and then only by a message."""
    pauses = [0.0, *[600.0] * 5]
    monkeypatch.setattr(waiting.Wait, "pauses", lambda self, timeout: iter(pauses if timeout else [None]))


def in_thread(wait):
    """Wait in another thread; return where its result will be."""
    got = SimpleQueue()

    def run():
        result = wait(timeout=LONG)
        connections.close_all()
        got.put(result)

    threading.Thread(target=run, daemon=True).start()
    return got


def waits_for(id):
    return id in ended_works._by_id


@each_database
def test_a_wait_ends_by_a_local_end_and_a_wrong_message_costs_it_a_read(read_once, monkeypatch):
    handle, reads = enqueue(add(a=1, b=2)), []
    read = type(handle)._read
    monkeypatch.setattr(type(handle), "_read", lambda self, *args: (reads.append(None), read(self, *args))[1])
    got = in_thread(handle.result)
    eventually(lambda: waits_for(handle.id))
    ended_works.publish([handle.id])
    eventually(lambda: len(reads) == 2)
    assert got.empty()
    complete(handle.id, 5)
    assert got.get(timeout=10) == 5
    assert ended_works._by_id == {}


def test_a_wait_for_a_group_ends_by_its_last_member(read_once):
    handles = enqueue_many([add(a=1, b=2), add(a=1, b=2)], together=True)
    got = in_thread(handles[0].group)
    eventually(lambda: waits_for(handles[0].id))
    complete(handles[0].id, 4)
    eventually(lambda: remote_ends._waits == 1)  # it has looked a second time
    assert got.empty()
    complete(handles[1].id, 5)
    assert got.get(timeout=10) == 5


def test_an_async_wait_ends_by_a_local_end(read_once):
    async def wait_and_complete():
        handle = await sync_to_async(enqueue)(add(a=1, b=2))
        task = asyncio.create_task(handle.aresult(timeout=LONG))
        while not waits_for(handle.id):
            await asyncio.sleep(0.01)
        await sync_to_async(complete)(handle.id, 5)
        return await asyncio.wait_for(task, 10)

    assert async_to_sync(wait_and_complete)() == 5
    assert ended_works._by_id == {}


@each_database
@pytest.mark.parametrize("earlier", [0, 1], ids=["its first read", "a later read"])
def test_an_async_wait_that_is_cancelled_during_a_read_leaves_nothing_behind(carrier, monkeypatch, earlier):
    handle = enqueue(add(a=1, b=2))
    reads_before, reads, goes_on, ends = [None] * earlier, threading.Event(), threading.Event(), SimpleQueue()
    read = type(handle)._read

    def slow_read(*arguments):
        if not reads_before:
            reads.set()
            goes_on.wait(10)
            try:
                return read(*arguments)
            finally:
                connections.close_all()
                ends.put(None)
        reads_before.pop()
        return read(*arguments)

    async def wait_and_cancel():
        task = asyncio.create_task(handle.aresult(timeout=LONG))
        while not reads.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
        goes_on.set()
        assert task.cancelled()

    monkeypatch.setattr(type(handle), "_read", slow_read)
    asyncio.run(wait_and_cancel())
    ends.get(timeout=10)
    assert (ended_works._by_id, remote_ends._waits, carrier._listeners.channels()) == ({}, 0, set())


@pytest.mark.parametrize("message", ["the id", "scribble"])
def test_a_wait_ends_by_a_message_of_another_process(read_twice, carrier, monkeypatch, message):
    handle = enqueue(add(a=1, b=2))
    got = in_thread(handle.result)
    eventually(lambda: carrier._listeners.channels() == {"ended"})
    with monkeypatch.context() as patch:
        patch.setattr(ended_works, "publish", lambda ids: None)  # as if it had happened elsewhere
        complete(handle.id, 5)
    assert got.empty()
    carrier.deliver("ended", ids_to_text([handle.id], "elsewhere") if message == "the id" else message)
    assert got.get(timeout=10) == 5
    assert carrier._listeners.channels() == set()


def test_ends_of_other_works_wake_nobody():
    wakes = []
    ended_works.subscribe(["a", "b"], wakes.append)
    ended_works.publish(["c"])
    assert wakes == []
    ended_works.publish(["b", "a"])
    ended_works.publish(None)
    assert wakes == [True, False]
    for _ in range(2):
        ended_works.unsubscribe(["a", "b"], wakes.append)
    ended_works.publish(None)
    assert wakes == [True, False]
    assert ended_works._by_id == {}


@pytest.mark.django_db(transaction=False)
def test_a_wait_inside_a_transaction_does_not_subscribe(carrier, drain):
    handle = enqueue(add(a=1, b=2))
    drain()
    assert handle.result(timeout=1) == 3
    assert carrier._listeners.channels() == set()


def test_waits_share_a_subscription_that_ends_with_the_last(carrier):
    with pytest.raises(WaitTimeout):
        enqueue(add(a=1, b=2)).result(timeout=0.1)
    assert (ended_works._by_id, carrier._listeners.channels()) == ({}, set())
    remote_ends.join()
    remote_ends.join()
    assert [channel for channel, _ in carrier._listeners._listeners.values()] == ["ended"]
    remote_ends.leave()
    assert carrier._listeners.channels() == {"ended"}
    remote_ends.leave()
    assert carrier._listeners.channels() == set()


@pytest.mark.parametrize(("is_live", "slowest"), [(False, 0.25), (True, 1.0)])
def test_reads_grow_rarer_and_more_so_with_a_live_pubsub(carrier, is_live, slowest):
    carrier.is_live = is_live
    wait = waiting.Wait(lambda: None)
    wait._is_remote = True
    pauses = wait.pauses(None)
    seen = [next(pauses) for _ in range(30)]
    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == (waiting.FIRST_PAUSE, slowest)


def test_unspecific_messages_are_answered_with_a_gap_between_reads(carrier):
    handle = enqueue(add(a=1, b=2))
    with waiting.Wait(lambda: None) as wait:
        wait.go_on(find_row(handle.id))
        ended_works.publish(None)
        assert 0 < wait.gap() <= waiting.LEAST_BETWEEN
        ended_works.publish([handle.id])
        assert wait.gap() == 0
