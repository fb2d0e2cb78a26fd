"""``drain`` runs everything due inside the test's transaction, and raises what failed."""

import threading
import traceback
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connection, transaction

from django_ayework import (
    Abort,
    Context,
    Defer,
    NotEncodable,
    Reschedule,
    Retry,
    batch_work,
    cancel,
    enqueue,
    enqueue_many,
    work,
)
from django_ayework import testing as kit
from django_ayework.errors import InvalidInstruction, NotDecodable
from django_ayework.models import Work, WorkerProcess
from django_ayework.testing import adrain, time_travel
from tests.app.models import Order
from tests.app.works import add, fail, notify, pay
from tests.marks import on_sqlite

pytestmark = pytest.mark.django_db
AT_ONCE, ONCE = Retry(attempts=3, base=0), Retry(attempts=1)


@work(name="testing.later")
def later(ctx: Context) -> None:
    if ctx.claim(f"{ctx.id} came once"):
        raise Defer(delay=60)


@work(name="testing.flaky", retry=AT_ONCE)
def flaky(ctx: Context, until: int) -> str:
    if ctx.attempt < until:
        raise ValueError(f"attempt {ctx.attempt}")
    return "done"


def numbers(report):
    return report.ran, report.succeeded, report.deferred, report.retried, report.dead


def test_the_report_counts_attempts_by_how_they_ended(drain, time_travel):
    assert drain is kit.drain
    report = drain()
    assert (numbers(report), report.states) == ((0, 0, 0, 0, 0), [])
    handles = enqueue_many([add(a=1, b=2), later(), fail()])
    dead = enqueue(fail(), retry=ONCE)
    first = enqueue(add(a=9, b=0), priority=1)
    report = drain(raises=False)
    assert numbers(report) == (5, 2, 1, 1, 1)
    assert [state.id for state in report.states] == [first.id, *(handle.id for handle in handles), dead.id]
    ended = ["success", "success", "scheduled", "scheduled", "dead"]
    assert [state.status for state in report.states] == ended
    assert drain().ran == 0
    time_travel(61)
    assert numbers(drain(raises=False)) == (2, 1, 0, 1, 0)
    handle = enqueue(fail(), retry=AT_ONCE)
    report = drain(raises=False)
    assert numbers(report) == (3, 0, 0, 2, 1)
    assert [(state.id, state.status) for state in report.states] == [(handle.id, "dead")]


def test_a_limit_counts_attempts_and_shows_the_first_of_two(drain):
    enqueue_many([add(a=n, b=0) for n in range(5)])
    assert [drain(limit=limit).ran for limit in (2, 0, 9)] == [2, 0, 3]
    enqueue(fail(), retry=AT_ONCE)
    assert "attempt 1 of 3; the work is pending." in raised_by(drain, 1).__notes__[0]


def test_works_run_in_the_thread_and_the_transaction_of_the_test(drain):
    @work(name="testing.thread")
    def where() -> str:
        return threading.current_thread().name

    order = Order.objects.create(reference="A1")
    with transaction.atomic():
        here, awaited = enqueue(where()), enqueue(notify(order_id=order.pk))
        assert drain().succeeded == 2
        assert connection.in_atomic_block
    assert here.result(timeout=0) == threading.current_thread().name
    assert awaited.result(timeout=0) == f"order {order.pk}"
    order.refresh_from_db()
    assert order.notified
    assert WorkerProcess.objects.count() == 0


def test_callbacks_that_wait_for_the_commit_run_and_may_queue_more(drain):
    ran = []

    @work(name="testing.callback")
    def callback() -> None:
        transaction.on_commit(lambda: ran.append("of the handler"))

    with pytest.raises(ZeroDivisionError), transaction.atomic():
        transaction.on_commit(lambda: ran.append("of a block that is rolled back"))
        _ = 1 / 0
    transaction.on_commit(lambda: {}["broken"], robust=True)
    transaction.on_commit(lambda: ran.append("before"))
    transaction.on_commit(lambda: enqueue(callback()) and None)
    assert drain().succeeded == 1
    assert ran == ["before", "of the handler"]
    transaction.on_commit(lambda: {}["broken"])
    with pytest.raises(KeyError, match="broken"):
        drain()


@pytest.mark.django_db(transaction=True)
def test_it_works_outside_of_a_transaction_and_in_async_tests(drain):
    order = Order.objects.create(reference="A1")
    enqueue(pay(order_id=order.pk))
    assert drain().succeeded == 1
    order.refresh_from_db()
    assert order.paid

    async def scenario():
        handle = await add.aenqueue(a=1, b=2)
        report = await adrain()
        await fail.aenqueue()
        with pytest.raises(RuntimeError, match="no luck"):
            await adrain()
        with pytest.raises(
            SynchronousOnlyOperation, match=r"^drain\(\) queries .*; write await adrain\(…\)\."
        ):
            drain()
        await fail.aenqueue()
        return report.succeeded, await handle.aresult(timeout=0), (await adrain(raises=False)).retried

    assert async_to_sync(scenario)() == (1, 3, 1)


@pytest.mark.django_db
def test_a_query_of_an_async_handler_is_not_taken_for_one_of_drain(drain):
    @work(name="testing.queries")
    async def queries() -> None:
        Order.objects.count()

    enqueue(queries())
    with pytest.raises(SynchronousOnlyOperation) as raised:
        drain()
    assert "adrain" not in str(raised.value)


@pytest.mark.django_db
def test_a_work_past_its_deadline_counts_as_ran_and_dead_without_an_attempt(drain):
    handle = enqueue(add(a=1, b=2), expires=1)
    time_travel(2)
    report = drain()
    assert (report.ran, report.dead, report.succeeded) == (1, 1, 0)
    assert (handle.state().reason, handle.state().attempt) == ("expired", 0)


def raised_by(drain, *args):
    with pytest.raises(BaseException) as raised:
        drain(*args)
    return raised.value


@on_sqlite
def test_a_failed_attempt_that_is_retried_later_raises_the_error_of_the_handler(drain):
    handle = enqueue(fail(message="no card"))
    error = raised_by(drain)
    assert (type(error), str(error)) == (RuntimeError, "no card")
    assert traceback.extract_tb(error.__traceback__)[-1].name == "fail"
    assert error.__notes__ == [
        f"Raised in drain() by work {handle.id} (shop.fail), attempt 1 of 3; the work is scheduled. "
        "drain(raises=False) returns the report instead."
    ]


@on_sqlite
def test_a_dead_work_raises_the_error_of_its_last_attempt_and_one_that_succeeds_after_all_none(drain):
    enqueue(flaky(until=9))
    error = raised_by(drain)
    assert str(error) == "attempt 3"
    assert "attempt 3 of 3; the work is dead." in error.__notes__[0]
    handle = enqueue(flaky(until=3))
    assert (numbers(drain()), handle.result(timeout=0)) == ((3, 1, 0, 2, 0), "done")


@on_sqlite
def test_everything_due_runs_before_the_errors_are_raised_as_a_group_in_order(drain):
    first, other, _ = enqueue_many([fail(message="first"), add(a=1, b=2), fail(message="second")])
    group = raised_by(drain)
    assert isinstance(group, ExceptionGroup)
    assert group.message == "several works failed in drain()"
    assert [str(error) for error in group.exceptions] == ["first", "second"]
    assert other.result(timeout=0) == 3
    assert first.state().last_error == "RuntimeError: first"


@on_sqlite
@pytest.mark.parametrize(
    "decision",
    [Defer(delay=60), Reschedule(delay=60), Abort("no card"), Abort(ValueError("no card")), None],
    ids=["defer", "reschedule", "abort", "abort-cause", "cancel"],
)
def test_a_decision_of_the_handler_is_no_failure(drain, decision):
    @work(name="testing.decides")
    def decides(ctx: Context) -> None:
        if decision is None:
            cancel(ctx.id)
        raise decision or ValueError("after its end")

    handle = enqueue(decides())
    assert drain().ran == 1
    assert (handle.state().status == "cancelled") is (decision is None)


@on_sqlite
def test_an_error_that_on_failure_defers_is_no_failure_and_one_that_it_aborts_is(drain):
    def advice(error: BaseException, info: Any) -> Any:
        return Defer(delay=60) if isinstance(error, LookupError) else "abort"

    @work(name="testing.advised", on_failure=advice)
    def advised(busy: bool) -> None:
        raise LookupError if busy else ValueError("broken")

    enqueue(advised(busy=True))
    assert drain().deferred == 1
    enqueue(advised(busy=False))
    assert isinstance(raised_by(drain), ValueError)


@on_sqlite
def test_an_input_or_an_outcome_that_cannot_be_used_is_a_failure(drain):
    @work(name="testing.unusable")
    def unusable(ctx: Context, how: str) -> Any:
        if how == "delay":
            raise Defer(delay="soon")
        if how == "append":
            return ctx.result(1, append=lambda total: total["none"])
        if how == "forgotten":
            ctx.result(1)
        return object() if how == "value" else None

    errors = {"append": TypeError, "value": NotEncodable, "forgotten": InvalidInstruction}
    for how, error in errors.items():
        enqueue(unusable(how=how), retry=ONCE)
        assert isinstance(raised_by(drain), error)
    enqueue(unusable(how="delay"), retry=ONCE)
    assert "delay" in str(raised_by(drain))
    handle = enqueue(add(a=1, b=2))
    Work.objects.filter(id=handle.id).update(input="garbage")
    assert isinstance(raised_by(drain), NotDecodable)


@on_sqlite
def test_an_error_that_fails_a_whole_batch_is_raised_once_and_one_that_is_returned_for_one_work_too(drain):
    @batch_work(name="testing.batch", size=3)
    def batch(items: list[Any]) -> list[Any]:
        raise ValueError("all of them")

    @batch_work(name="testing.item", size=3)
    def item(items: list[Any]) -> list[Any]:
        return [ValueError("this one"), object(), 3]

    first, *_ = enqueue_many([batch(1), batch(2), batch(3)])
    error = raised_by(drain)
    assert str(error) == "all of them"
    assert error.__notes__[0].startswith(
        f"Raised in drain() by work {first.id} (testing.batch) and 2 more works, attempt 1 of 3;"
    )
    enqueue_many([item(1), item(2), item(3)])
    group = raised_by(drain)
    assert isinstance(group, ExceptionGroup)
    assert [type(error) for error in group.exceptions] == [ValueError, NotEncodable]
