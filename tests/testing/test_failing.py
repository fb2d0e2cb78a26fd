"""``drain`` and ``perform`` show what failed."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
from asgiref.sync import async_to_sync

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
from django_ayework.errors import InvalidInstruction, NotDecodable
from django_ayework.models import Work
from django_ayework.testing import adrain
from tests.app.works import add, fail

pytestmark = pytest.mark.django_db

AT_ONCE = Retry(attempts=3, base=0)


def raised_by(drain: Any, *args: Any) -> BaseException:
    with pytest.raises(BaseException) as raised:
        drain(*args)
    return raised.value


def test_a_failed_attempt_that_is_retried_later_raises_the_error_of_the_handler(drain: Any) -> None:
    handle = enqueue(fail(message="no card"))
    error = raised_by(drain)
    assert (type(error), str(error)) == (RuntimeError, "no card")
    assert traceback.extract_tb(error.__traceback__)[-1].name == "fail"
    assert error.__notes__ == [
        f"Raised in drain() by work {handle.id} (shop.fail), attempt 1 of 3; the work is scheduled. "
        "drain(raises=False) returns the report instead."
    ]


def test_a_dead_work_raises_the_error_of_its_last_attempt(drain: Any) -> None:
    @work(name="t.failing.counts", retry=AT_ONCE)
    def counts(ctx: Context) -> None:
        raise ValueError(f"attempt {ctx.attempt}")

    enqueue(counts())
    error = raised_by(drain)
    assert str(error) == "attempt 3"
    assert "attempt 3 of 3; the work is dead." in error.__notes__[0]


def test_everything_due_runs_before_the_error_is_raised(drain: Any) -> None:
    failing, other = enqueue_many([fail(), add(a=1, b=2)])
    raised_by(drain)
    assert other.result(timeout=0) == 3
    state = failing.state()
    assert state is not None and state.last_error == "RuntimeError: no luck"


def test_several_works_raise_a_group_in_the_order_in_which_they_ran(drain: Any) -> None:
    enqueue_many([fail(message="first"), add(a=1, b=2), fail(message="second")])
    group = raised_by(drain)
    assert isinstance(group, ExceptionGroup)
    assert group.message == "several works failed in drain()"
    assert [str(error) for error in group.exceptions] == ["first", "second"]


def test_raises_false_returns_the_report(drain: Any) -> None:
    enqueue_many([fail(), fail()])
    assert drain(raises=False).retried == 2


def test_a_work_that_succeeds_after_failed_attempts_raises_nothing(drain: Any) -> None:
    @work(name="t.failing.flaky", retry=AT_ONCE)
    def flaky(ctx: Context) -> str:
        if ctx.attempt < 3:
            raise ValueError("not yet")
        return "done"

    handle = enqueue(flaky())
    report = drain()
    assert (report.retried, report.succeeded, handle.result(timeout=0)) == (2, 1, "done")


def test_a_limit_between_two_attempts_shows_the_first(drain: Any) -> None:
    enqueue(fail(), retry=AT_ONCE)
    assert "attempt 1 of 3; the work is pending." in raised_by(drain, 1).__notes__[0]


@pytest.mark.parametrize(
    "decision",
    [Defer(delay=60), Reschedule(delay=60), Abort("no card"), Abort(ValueError("no card"))],
    ids=["defer", "reschedule", "abort", "abort-cause"],
)
def test_what_a_handler_decides_is_no_failure(drain: Any, decision: Exception) -> None:
    @work(name="t.failing.decides")
    def decides() -> None:
        raise decision

    enqueue(decides())
    assert drain().ran == 1


def test_an_error_that_on_failure_defers_is_no_failure_and_one_that_it_aborts_is(drain: Any) -> None:
    def advice(error: BaseException, info: Any) -> Any:
        return Defer(delay=60) if isinstance(error, LookupError) else "abort"

    @work(name="t.failing.advised", on_failure=advice)
    def advised(busy: bool) -> None:
        raise LookupError if busy else ValueError("broken")

    enqueue(advised(busy=True))
    assert drain().deferred == 1
    enqueue(advised(busy=False))
    assert isinstance(raised_by(drain), ValueError)


def test_a_decision_that_cannot_be_used_is_a_failure(drain: Any) -> None:
    @work(name="t.failing.muddled")
    def muddled() -> None:
        raise Defer(delay="soon")  # type: ignore[arg-type]

    enqueue(muddled())
    assert "delay" in str(raised_by(drain))


def test_a_cancelled_work_is_no_failure(drain: Any) -> None:
    @work(name="t.failing.cancelled")
    def cancelled(ctx: Context) -> None:
        cancel(ctx.id)
        raise ValueError("after its end")

    handle = enqueue(cancelled())
    drain()
    state = handle.state()
    assert state is not None and state.status == "cancelled"


def test_an_outcome_that_cannot_be_written_is_a_failure(drain: Any) -> None:
    @work(name="t.failing.unstorable")
    def unstorable() -> Any:
        return object()

    @work(name="t.failing.forgetful")
    def forgetful(ctx: Context) -> None:
        ctx.result(1)

    @work(name="t.failing.append")
    def append(ctx: Context):
        return ctx.result(1, append=lambda total: total["none"])

    enqueue(unstorable())
    assert isinstance(raised_by(drain), NotEncodable)
    enqueue(forgetful())
    assert isinstance(raised_by(drain), InvalidInstruction)
    enqueue(append())
    assert isinstance(raised_by(drain), TypeError)


def test_an_input_that_cannot_be_read_is_a_failure(drain: Any) -> None:
    handle = enqueue(add(a=1, b=2))
    Work.objects.filter(id=handle.id).update(input="garbage")
    assert isinstance(raised_by(drain), NotDecodable)


def test_an_error_that_fails_a_whole_batch_is_raised_once(drain: Any) -> None:
    @batch_work(name="t.failing.batch", size=3)
    def batch(items: list[Any]) -> list[Any]:
        raise ValueError("all of them")

    first, *_ = enqueue_many([batch(1), batch(2), batch(3)])
    error = raised_by(drain)
    assert str(error) == "all of them"
    assert error.__notes__[0].startswith(
        f"Raised in drain() by work {first.id} (t.failing.batch) and 2 more works, attempt 1 of 3;"
    )


def test_an_error_that_a_batch_returns_for_one_work_is_raised(drain: Any) -> None:
    @batch_work(name="t.failing.item", size=3)
    def item(items: list[Any]) -> list[Any]:
        return [ValueError("this one"), object(), 3]

    enqueue_many([item(1), item(2), item(3)])
    group = raised_by(drain)
    assert isinstance(group, ExceptionGroup)
    assert [type(error) for error in group.exceptions] == [ValueError, NotEncodable]


@pytest.mark.django_db(transaction=True)
def test_the_async_twin_raises_as_well() -> None:
    async def scenario() -> int:
        await fail.aenqueue()
        with pytest.raises(RuntimeError, match="no luck"):
            await adrain()
        await fail.aenqueue()
        return (await adrain(raises=False)).retried

    assert async_to_sync(scenario)() == 1


def test_there_is_no_result_of_a_handler_that_raised(perform: Any) -> None:
    performed = perform(fail(message="no card"))
    with pytest.raises(RuntimeError, match="no card") as raised:
        _ = performed.result
    assert raised.traceback[-1].name == "fail"
    with pytest.raises(RuntimeError, match="no card"):
        _ = performed.instruction
    assert performed.error is raised.value
