"""Async handlers share one event loop, and nothing else: no context, no cancellation, no slot."""

import asyncio
import threading
import time
from contextvars import ContextVar

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, connections, transaction
from django.utils.translation import activate, get_language

from django_ayework import BatchItem, Retry, batch_work, enqueue, work
from django_ayework.api import enqueue_many
from django_ayework.models import Attempt, Work
from django_ayework.signals import work_started
from django_ayework.testing import running_worker
from tests.attempts.conftest import connected
from tests.marks import own_session
from tests.processes import eventually
from tests.worker.conftest import all_end

pytestmark = pytest.mark.usefixtures("quick_polls")

TENANT = ContextVar("TENANT", default="none")


def test_an_async_handler_sees_no_context_variables_of_another(stage):
    seen = []

    @work(name="worker.tenants")
    async def tenants(number: int) -> None:
        seen.append((TENANT.get(), get_language()))
        if number % 10 == 0:
            TENANT.set("ann")
            activate("de")

    with running_worker(concurrency=1):
        for _ in range(2):  # at the second time the end of one handler begins the next
            all_end(enqueue_many([tenants(number=number) for number in range(200)]))
    assert set(seen) == {("none", "en-us")}


@pytest.mark.parametrize("has_thread", [True, False])
def test_an_async_handler_that_cancels_its_own_task_and_returns_has_succeeded(stage, has_thread):
    """Without a thread to clean up asyncio calls the task cancelled, though its coroutine has returned."""
    calls = []

    @work(name="worker.cancels_itself")
    async def cancels_itself() -> int:
        calls.append("called")
        if has_thread:
            await sync_to_async(Work.objects.count)()
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return 2

    with running_worker():
        assert enqueue(cancels_itself()).result(timeout=10) == 2
    assert calls == ["called"]


@pytest.mark.parametrize("returns", [True, False])
def test_a_batch_whose_handler_cancels_its_own_task_at_its_end_is_concluded_with_advice(stage, returns):
    """``on_failure`` is asked in the thread of the works, so the task waits once more after the handler."""
    asked = []

    def advise(error, info) -> None:
        asked.append(str(error))

    @batch_work(name="worker.batch_cancels_itself", size=1, on_failure=advise, retry=Retry(attempts=1))
    async def cancels_itself(items: list[BatchItem[int]]) -> list[int]:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        if returns:
            return [2]
        raise ValueError("no luck")

    with running_worker():
        handle = enqueue(cancels_itself(1))
        eventually(lambda: handle.state().status in ("success", "dead"))
    found = handle.state()
    assert (found.status, found.attempt) == ("success" if returns else "dead", 1)
    assert asked == ([] if returns else ["no luck"])


def test_a_task_that_is_cancelled_before_its_handler_is_called_fails_an_attempt_and_no_more(stage):
    """The work would wait for the end of its lease if the worker took the cancellation for its own."""
    opening, goes_on = threading.Event(), threading.Event()

    def receive(work, **more) -> None:
        if work.type == "worker.opens" and work.attempt == 1:
            opening.set()
            goes_on.wait(10)

    @work(name="worker.opens", retry=Retry(attempts=2, base=0))
    async def opens() -> int:
        return 2

    @work(name="worker.cancels_the_rest")
    async def cancels_the_rest() -> None:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    with connected(receive, work_started), running_worker():
        handle = enqueue(opens())
        assert opening.wait(10)
        all_end([enqueue(cancels_the_rest())])
        goes_on.set()
        assert handle.result(timeout=10) == 2
    assert [*Attempt.objects.values_list("outcome", "error")] == [("failed", "CancelledError")]


def test_an_async_handler_that_cancels_all_tasks_costs_no_work_and_no_slot(stage):
    @work(name="worker.cancels_all")
    async def cancels_all() -> None:
        time.sleep(0.05)  # meanwhile the other works are handed to the loop
        await asyncio.sleep(0)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    @work(name="worker.victim", retry=Retry(attempts=20, base=0.01))
    async def victim(number: int) -> None:
        await asyncio.sleep(0.001)

    handles = [
        handle
        for _ in range(4)
        for handle in enqueue_many([cancels_all(), *[victim(number=number) for number in range(7)]])
    ]
    with running_worker(concurrency=8) as worker:
        all_end(handles)
        eventually(lambda: worker._in_flight.unfinished == 0)
        assert worker._executor.free == 8
    assert set(Work.objects.values_list("status", flat=True)) == {"success"}


@pytest.mark.vendors("postgresql")
def test_the_queries_of_tasks_that_outlive_their_handlers_share_one_thread(stage):
    threads, go, left = [], threading.Event(), []

    def count() -> None:
        Work.objects.count()
        threads.append(threading.current_thread())
        assert connection.connection is not None

    @work(name="worker.leaves_a_task")
    async def leaves_a_task() -> None:
        async def outlive() -> None:
            while not go.is_set():
                await asyncio.sleep(0.01)
            await sync_to_async(count)()

        left.append(asyncio.create_task(outlive()))

    with running_worker(concurrency=5):
        all_end(enqueue_many([leaves_a_task() for _ in range(10)]))
        go.set()
        eventually(lambda: all(task.done() for task in left))
        assert [task.exception() for task in left] == [None] * 10
        assert len(threads) == 10
        assert len({*threads}) == 1


@own_session
@pytest.mark.vendors("postgresql")
def test_a_connection_that_broke_in_another_thread_of_the_loop_fails_one_call_alone(stage):
    @work(name="worker.counts_elsewhere", retry=Retry(attempts=1))
    async def counts_elsewhere(breaks: bool) -> int:
        def count() -> int:
            if breaks:
                connection.ensure_connection()
                connection.connection.close()
            return Work.objects.count()

        return await asyncio.to_thread(count)

    with running_worker(concurrency=1):
        broken = enqueue(counts_elsewhere(breaks=True))
        eventually(lambda: broken.state().ended_at)
        assert broken.state().status == "dead"
        assert enqueue(counts_elsewhere(breaks=False)).result(timeout=10) == 2


def test_a_connection_that_another_thread_of_the_loop_has_opened_ends_with_the_call(stage, monkeypatch):
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", None)
    opened = []

    @work(name="worker.connects_elsewhere")
    async def connects() -> None:
        def connect() -> None:
            opened.append(connections["default"])
            connection.ensure_connection()

        await asyncio.to_thread(connect)

    with running_worker(concurrency=1):
        all_end([enqueue(connects())])
    eventually(lambda: opened[0].connection is None)


@pytest.mark.vendors("postgresql")
def test_a_transaction_left_open_in_another_thread_of_the_loop_encloses_no_further_call(stage):
    found = []

    @work(name="worker.leaves_a_transaction_elsewhere")
    async def leaves_one(opens: bool) -> None:
        def look() -> None:
            found.append(connection.in_atomic_block)
            if opens:
                transaction.atomic().__enter__()

        await asyncio.to_thread(look)

    with running_worker(concurrency=1):
        for opens in (True, False):
            all_end([enqueue(leaves_one(opens=opens))])
    assert found == [False, False]


def test_a_task_factory_that_a_handler_leaves_on_the_loop_costs_no_other_work(stage):
    """Handlers share the loop, so the engine makes its tasks without the factory."""

    def refuse(loop, coroutine, **more):
        coroutine.close()
        raise RuntimeError("no tasks")

    @work(name="worker.leaves_a_factory", retry=Retry(attempts=1))
    async def leaves_a_factory() -> None:
        asyncio.get_running_loop().set_task_factory(refuse)

    @work(name="worker.after_that", retry=Retry(attempts=1))
    async def after_that(number: int) -> int:
        return number

    with running_worker(concurrency=1):
        enqueue(leaves_a_factory()).result(timeout=20)
        assert [enqueue(after_that(number=number)).result(timeout=20) for number in range(2)] == [0, 1]
