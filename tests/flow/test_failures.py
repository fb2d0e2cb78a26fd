"""What counts as a failed attempt."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from django.db import connection

from django_ayework import (
    Abort,
    Context,
    Defer,
    Instruction,
    Reschedule,
    Retry,
    enqueue,
    enqueue_many,
    work,
)
from django_ayework.models import Attempt, Group, Work
from tests.app.models import Order
from tests.app.works import add, fail
from tests.flow.conftest import ONCE, Configure

pytestmark = pytest.mark.django_db


# What a handler may not return


def test_an_instruction_that_is_not_returned_fails_the_attempt(drain: Any, time_travel: Any) -> None:
    @work(name="t.failures.forgetful", retry=Retry(attempts=2))
    def forgetful(ctx: Context) -> None:
        ctx.queue([add(a=1, b=2)])

    handle = enqueue(forgetful())
    assert drain(raises=False).retried == 1
    time_travel(60)
    assert drain(raises=False).dead == 1
    state = handle.state()
    assert state is not None
    assert state.reason == "exhausted"
    assert state.error == (
        "InvalidInstruction: the handler of 't.failures.forgetful' built ctx.queue(…) that was not returned; "
        "write return ctx.queue(…), or put it into the list of a returned ctx.queue(…)."
    )
    assert Work.objects.count() == 1


def test_the_type_may_be_loose_where_the_system_is_strict(outcome: Any) -> None:
    @work(name="t.failures.loose", strict_return=False)
    def loose(ctx: Context):
        ctx.queue([add(a=1, b=2)])
        return ctx.result("fine")

    assert outcome(loose()).result == "fine"
    assert Work.objects.count() == 1


def test_the_type_may_be_strict_where_the_system_is_loose(outcome: Any, configure: Configure) -> None:
    def forgetful(ctx: Context) -> None:
        ctx.result(1)

    configure(STRICT_RETURN=False)
    assert outcome(work(name="t.failures.system_loose")(forgetful)()).status == "success"
    strict = work(name="t.failures.type_strict", strict_return=True)(forgetful)
    assert outcome(strict()).status == "dead"


def test_the_instruction_of_another_call_is_refused(outcome: Any) -> None:
    kept: list[Instruction[Any, Any]] = []

    @work(name="t.failures.foreign")
    def foreign(ctx: Context):
        kept.append(ctx.result(len(kept)))
        return kept[0]

    assert outcome(foreign()).status == "success"
    assert outcome(foreign()).error == (
        "InvalidInstruction: the handler of 't.failures.foreign' returned an instruction of another context; "
        "build it with the ctx that this call was given."
    )


def test_a_foreign_instruction_inside_a_queue_is_refused(outcome: Any) -> None:
    kept: list[Instruction[Any, Any]] = []

    @work(name="t.failures.foreign_nested")
    def nested(ctx: Context):
        kept.append(ctx.queue([add(a=1, b=1)]))
        return ctx.queue([kept[0]])

    assert outcome(nested()).status == "success"
    assert "another context" in (outcome(nested()).error or "")
    assert Work.objects.filter(type="shop.add").count() == 1


def test_a_work_returned_instead_of_queued_is_refused(outcome: Any) -> None:
    @work(name="t.failures.returns_work")
    def returns_work() -> Any:
        return add(a=1, b=2)

    assert outcome(returns_work()).error == (
        "InvalidInstruction: the handler of 't.failures.returns_work' returned the work 'shop.add' itself; "
        "return ctx.queue([...]) to queue it, with ctx as the handler's first parameter."
    )


def test_a_list_of_works_returned_instead_of_queued_is_refused(outcome: Any) -> None:
    @work(name="t.failures.returns_works")
    def returns_works() -> Any:
        return [add(a=1, b=2), add(a=3, b=4)]

    @work(name="t.failures.returns_instructions")
    def returns_instructions(ctx: Context) -> Any:
        return (ctx.result(1), add(a=1, b=2))

    for build, kind in ((returns_works, "list"), (returns_instructions, "tuple")):
        assert outcome(build()).error == (
            f"InvalidInstruction: the handler of {build.name!r} returned a {kind} of works; return "
            "ctx.queue([...]) to queue them, with ctx as the handler's first parameter."
        )


@pytest.mark.parametrize("saying", [Defer(delay=5), Reschedule(delay=5), Abort("no card")])
@pytest.mark.parametrize("takes_context", [False, True])
def test_an_exception_returned_instead_of_raised_is_refused(
    outcome: Any, saying: Any, takes_context: bool
) -> None:
    def without() -> Any:
        return saying

    def with_context(ctx: Context) -> Any:
        return saying

    name = type(saying).__name__
    kind = f"t.failures.returns_{name}_{takes_context}"
    returns = work(name=kind)(with_context if takes_context else without)

    assert outcome(returns()).error == (
        f"InvalidInstruction: the handler of {kind!r} returned {name}(…), which has no effect "
        f"when it is returned; raise it: raise {name}(…)."
    )


def test_an_async_handler_that_forgets_to_await_is_told_so(outcome: Any) -> None:
    async def fetch() -> int:
        return 1

    @work(name="t.failures.not_awaited")
    async def not_awaited() -> Any:
        return fetch()

    assert outcome(not_awaited()).error == (
        "InvalidInstruction: the handler of 't.failures.not_awaited' returned a coroutine that it did not "
        "await; write return await fetch(…)."
    )


def test_next_belongs_to_a_queue_only(outcome: Any) -> None:
    @work(name="t.failures.next_of_result")
    def next_of_result(ctx: Context) -> Any:
        return ctx.result(1).next([add(a=1, b=2)])  # type: ignore[attr-defined]

    assert outcome(next_of_result()).error == (
        "AttributeError: ctx.result(…) has no .next, which is of ctx.queue(…) only: write "
        "return ctx.queue([…]).next([…])."
    )


def test_a_work_has_no_next_either(outcome: Any) -> None:
    @work(name="t.failures.next_of_work")
    def next_of_work(ctx: Context) -> Any:
        return ctx.queue([add(a=1, b=2).next([add(a=3, b=4)])])  # type: ignore[attr-defined]

    error = outcome(next_of_work()).error or ""
    assert error.startswith("AttributeError: <WorkRequest shop.add ")
    assert error.endswith(
        "> has no .next, which is of ctx.queue(…) only: write return ctx.queue([…]).next([…])."
    )


def test_what_is_no_work_cannot_be_queued(outcome: Any) -> None:
    @work(name="t.failures.queues_type")
    def queues_type(ctx: Context) -> Any:
        return ctx.queue([add])  # type: ignore[list-item]

    assert "works built by calling their type, such as add(a=1, b=2)" in (outcome(queues_type()).error or "")


def test_a_result_that_cannot_be_stored_fails_the_attempt(outcome: Any) -> None:
    @work(name="t.failures.unstorable")
    def unstorable() -> Any:
        return {"ok": 1, "bad": object()}

    state = outcome(unstorable())
    assert (state.status, state.reason) == ("dead", "exhausted")
    assert state.error == (
        "NotEncodable: the result of 't.failures.unstorable' cannot be stored: expected a value that can be "
        "stored, got: object at result['bad']; pass plain data, or describe its class in a CustomType"
    )


def test_a_result_that_is_too_large_fails_the_attempt(outcome: Any, configure: Configure) -> None:
    @work(name="t.failures.huge")
    def huge() -> str:
        return "x" * 100

    configure(MAX_PAYLOAD=100)
    assert outcome(huge()).error == (
        "PayloadTooLarge: expected the result of 't.failures.huge' to have at most 100 characters once "
        "encoded (AYEWORK['MAX_PAYLOAD']), got: 102; store it elsewhere and pass a reference."
    )


def test_a_child_that_cannot_be_stored_fails_the_attempt_and_queues_none(outcome: Any) -> None:
    @work(name="t.failures.bad_child")
    def bad_child(ctx: Context):
        return ctx.queue([add(a=1, b=2), add(a=object(), b=2)])

    assert "input['a']" in (outcome(bad_child()).error or "")
    assert Work.objects.count() == 1


def test_a_plain_function_that_returns_a_coroutine_fails_the_attempt(outcome: Any) -> None:
    async def elsewhere() -> int:
        return 1

    @work(name="t.failures.coroutine")
    def coroutine() -> Any:
        return elsewhere()

    assert outcome(coroutine()).error == (
        "InvalidInstruction: the handler of 't.failures.coroutine' is a plain function that returned a "
        "coroutine; declare it with async def, and write return await elsewhere(…)."
    )


def test_an_append_that_raises_fails_the_attempt_and_nothing_of_it_is_written(outcome: Any) -> None:
    @work(name="t.failures.bad_append")
    def bad_append(ctx: Context):
        return ctx.queue([add(a=1, b=2), ctx.result(1, append=lambda existing: existing + 1)])

    state = outcome(bad_append())
    assert (state.status, state.reason) == ("dead", "exhausted")
    assert (state.error or "").startswith("TypeError: unsupported operand")
    assert (Work.objects.count(), Group.objects.count()) == (1, 0)


# Exceptions of every kind


def test_an_error_whose_message_cannot_be_printed_is_kept_by_its_name(outcome: Any) -> None:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    @work(name="t.failures.unprintable")
    def unprintable() -> None:
        raise Unprintable

    assert outcome(unprintable()).error == "Unprintable: (its message cannot be printed: RuntimeError)"


def test_an_error_that_no_database_takes_is_kept_escaped(outcome: Any) -> None:
    state = outcome(fail(message="nul \x00 and half a pair \ud800"))
    assert state.error == "RuntimeError: nul \\x00 and half a pair \\ud800"
    attempt = Attempt.objects.get()
    assert "\x00" not in attempt.traceback


def test_a_long_error_is_cut(outcome: Any) -> None:
    error = outcome(fail(message="x" * 20_000)).error
    assert error is not None
    assert len(error) < 10_100
    assert error.endswith("… [truncated]")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("flavour", ["sync", "async"])
@pytest.mark.parametrize("raised", [SystemExit(3), asyncio.CancelledError("mine")], ids=["exit", "cancel"])
def test_a_handler_that_tries_to_leave_fails_its_attempt(
    raised: BaseException, flavour: str, running_worker: Any
) -> None:
    @work(name="t.failures.leaves_sync", retry=ONCE)
    def leaves() -> None:
        raise raised

    @work(name="t.failures.leaves_async", retry=ONCE)
    async def aleaves() -> None:
        raise raised

    handle = enqueue(leaves() if flavour == "sync" else aleaves())
    with running_worker(concurrency=1):
        assert handle.group(timeout=20) is None
    state = handle.state()
    assert state is not None
    assert (state.status, state.reason) == ("dead", "exhausted")
    assert state.error == f"{type(raised).__name__}: {raised}"


def test_a_database_error_leaves_the_work_and_its_test_whole(outcome: Any) -> None:
    @work(name="t.failures.database")
    def broken() -> None:
        Order.objects.create(reference="before")
        with connection.cursor() as cursor:
            cursor.execute("SELECT no_such_column FROM no_such_table")

    state = outcome(broken())
    assert state.status == "dead"
    assert Order.objects.count() == 0


def test_one_failure_does_not_touch_its_neighbours(drain: Any) -> None:
    handles = enqueue_many([add(a=1, b=0), fail(), add(a=2, b=0)])
    report = drain(raises=False)
    assert (report.succeeded, report.retried) == (2, 1)
    assert handles[2].result(timeout=0) == 2
