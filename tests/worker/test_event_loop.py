"""Async handlers share one event loop, and nothing else: no context, no cancellation, no slot."""

import asyncio
import time
from contextvars import ContextVar

import pytest
from asgiref.sync import sync_to_async
from django.utils.translation import activate, get_language

from django_ayework import Retry, enqueue, work
from django_ayework.api import enqueue_many
from django_ayework.models import Work
from django_ayework.testing import running_worker
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


def test_an_async_handler_that_cancels_its_own_task_and_returns_has_succeeded(stage):
    @work(name="worker.cancels_itself")
    async def cancels_itself() -> int:
        await sync_to_async(Work.objects.count)()  # so there is a thread to clean up
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return 2

    with running_worker():
        assert enqueue(cancels_itself()).result(timeout=10) == 2


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
