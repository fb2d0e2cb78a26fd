"""``drain``: everything due runs here and now, inside the test's transaction."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction

from django_ayework import Context, Defer, Retry, dependency, enqueue, enqueue_many, work
from django_ayework.models import WorkerProcess
from django_ayework.testing import adrain
from django_ayework.testing import drain as drain_of_the_kit
from tests.app.models import Order
from tests.app.works import add, fail, notify, pay

pytestmark = pytest.mark.django_db


@work(name="t.drain.later")
def later(ctx: Context) -> None:
    if ctx.claim(f"{ctx.id} came once"):
        raise Defer(delay=60)


def test_the_fixture_is_the_function_of_the_kit(drain: Any) -> None:
    assert drain is drain_of_the_kit


def test_nothing_due_is_an_empty_report(drain: Any) -> None:
    report = drain()
    assert (report.ran, report.succeeded, report.dead, report.deferred, report.retried) == (0, 0, 0, 0, 0)
    assert report.states == []


def test_the_report_counts_attempts_by_how_they_ended(drain: Any, time_travel: Any) -> None:
    handles = enqueue_many([add(a=1, b=2), later(), fail()])
    dead = enqueue(fail(), retry=Retry(attempts=1))
    report = drain(raises=False)
    assert (report.ran, report.succeeded, report.deferred, report.retried, report.dead) == (4, 1, 1, 1, 1)
    assert [state.id for state in report.states] == [*(handle.id for handle in handles), dead.id]
    assert [state.status for state in report.states] == ["success", "scheduled", "scheduled", "dead"]
    time_travel(61)
    report = drain(raises=False)
    assert (report.ran, report.succeeded, report.retried) == (2, 1, 1)


def test_a_work_that_runs_twice_is_one_state(drain: Any) -> None:
    handle = enqueue(fail(), retry=Retry(attempts=3, base=0))
    report = drain(raises=False)
    assert (report.ran, report.retried, report.dead) == (3, 2, 1)
    assert [state.id for state in report.states] == [handle.id]
    assert report.states[0].status == "dead"


def test_a_limit_counts_attempts(drain: Any) -> None:
    enqueue_many([add(a=n, b=0) for n in range(5)])
    assert drain(limit=2).ran == 2
    assert drain(limit=0).ran == 0
    assert drain(limit=9).ran == 3


def test_what_the_works_queue_runs_too_whatever_the_queue(drain: Any) -> None:
    @work(name="t.drain.tree", queue="a")
    def tree(ctx: Context, depth: int):
        if depth == 0:
            return ctx.result("leaf")
        return ctx.queue([tree(depth=depth - 1), tree(depth=depth - 1)], queue=f"q{depth}")

    handle = enqueue(tree(depth=3))
    assert drain().succeeded == 15
    assert handle.group(timeout=0) == "leaf"


def test_larger_priorities_go_first_then_the_older(drain: Any) -> None:
    handles = enqueue_many([add(a=n, b=0) for n in range(3)])
    first = enqueue(add(a=9, b=0), priority=1)
    report = drain()
    assert [state.id for state in report.states] == [first.id, *(handle.id for handle in handles)]


def test_gates_open_and_run_out_of_time(drain: Any, time_travel: Any) -> None:
    watched = enqueue(add(a=1, b=0))
    opened = enqueue(dependency([watched], [add(a=2, b=0)]))
    closed = enqueue(dependency(["never"], [add(a=3, b=0)], timeout=60))
    time_travel(61)
    report = drain()
    assert report.ran == 2
    assert opened.group(timeout=0) == 2
    state = closed.state()
    assert state is not None and state.reason == "expired"


def test_what_is_due_later_stays(drain: Any) -> None:
    handle = enqueue(add(a=1, b=2), delay=1)
    assert drain().ran == 0
    state = handle.state()
    assert state is not None and state.status == "scheduled"


def test_it_needs_no_thread_and_no_worker(drain: Any) -> None:
    threads: list[str] = []

    @work(name="t.drain.thread")
    def where() -> None:
        threads.append(threading.current_thread().name)

    enqueue(where())
    drain()
    assert threads == [threading.current_thread().name]
    assert WorkerProcess.objects.count() == 0


def test_async_works_run_in_the_tests_transaction_as_well(drain: Any) -> None:
    order = Order.objects.create(reference="A1")
    handle = enqueue(notify(order_id=order.pk))
    drain()
    order.refresh_from_db()
    assert order.notified
    assert handle.result(timeout=0) == f"order {order.pk}"


def test_callbacks_that_wait_for_the_commit_run(drain: Any) -> None:
    ran: list[str] = []
    transaction.on_commit(lambda: ran.append("before"))

    @work(name="t.drain.callback")
    def callback() -> None:
        transaction.on_commit(lambda: ran.append("of the handler"))

    enqueue(callback())
    drain()
    assert ran == ["before", "of the handler"]


def test_a_callback_may_queue_more(drain: Any) -> None:
    order = Order.objects.create(reference="A1")
    transaction.on_commit(lambda: enqueue(pay(order_id=order.pk)) and None)
    assert drain().succeeded == 1


def test_a_callback_of_a_rolled_back_block_does_not_run(drain: Any) -> None:
    ran: list[str] = []
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        transaction.on_commit(lambda: ran.append("never"))
        _ = 1 / 0
    drain()
    assert ran == []


def test_a_robust_callback_that_raises_stops_nothing(drain: Any) -> None:
    ran: list[str] = []

    def broken() -> None:
        raise LookupError

    transaction.on_commit(broken, robust=True)
    transaction.on_commit(lambda: ran.append("after"))
    drain()
    assert ran == ["after"]


def test_works_can_be_drained_within_a_block_of_ones_own(drain: Any) -> None:
    with transaction.atomic():
        handle = enqueue(add(a=1, b=2))
        assert drain().succeeded == 1
        assert connection.in_atomic_block
    assert handle.result(timeout=0) == 3


@pytest.mark.django_db(transaction=True)
def test_it_works_outside_of_a_transaction_too(drain: Any) -> None:
    order = Order.objects.create(reference="A1")
    enqueue(pay(order_id=order.pk))
    assert drain().succeeded == 1
    order.refresh_from_db()
    assert order.paid


@pytest.mark.django_db(transaction=True)
def test_async_tests_drain_with_the_twin() -> None:
    async def scenario() -> Any:
        handle = await add.aenqueue(a=1, b=2)
        report = await adrain()
        return report.succeeded, await handle.aresult(timeout=0)

    assert async_to_sync(scenario)() == (1, 3)
