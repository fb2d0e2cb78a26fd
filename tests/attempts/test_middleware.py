"""Middlewares surround the handler of every attempt, in any mix of plain and async functions."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from typing import Any

import pytest
from django.db import connection, transaction

from django_ayework import Abort, Context, Retry, cancel, enqueue, work
from django_ayework.models import Attempt
from django_ayework.testing import perform, running_worker
from tests.app.models import Order
from tests.app.works import add
from tests.attempts.middlewares import awaited, both, in_a_worker, plain, run, steps
from tests.processes import eventually

pytestmark = pytest.mark.django_db
mixes = pytest.mark.parametrize(
    "kinds", [(plain, plain), (plain, awaited), (awaited, plain), (awaited, awaited)]
)
ONION = ["outer before", "inner before", "handler", "inner after", "outer after"]


@pytest.fixture(autouse=True)
def fresh() -> None:
    steps.clear()


@both
@mixes
def test_the_first_is_the_outermost_and_those_of_the_settings_surround_it(configure, function, kinds):
    outer, inner = kinds
    assert run(function, middleware=[outer("outer"), inner("inner")]).status == "success"
    assert steps == ONION
    steps.clear()
    configure(MIDDLEWARE=[outer("outer", a=1)])
    run(function, middleware=[inner("inner")])
    assert steps == ONION
    steps.clear()
    performed = work(name="attempts.case", middleware=[inner("inner")])(function)()
    assert perform(performed).result == {"a": 1}
    assert steps == ONION


@pytest.mark.django_db(transaction=True)
@both
@pytest.mark.parametrize("kinds", [(plain, awaited), (awaited, plain)])
def test_a_worker_runs_them_as_well(configure, function, kinds):
    outer, inner = kinds
    configure(MIDDLEWARE=[outer("outer", a=1, b=1)])
    assert in_a_worker(function, middleware=[inner("inner", b=2)]).result == {"a": 1, "b": 2}
    assert steps == ONION


class Counting:
    """A middleware that is an object."""

    made = 0

    def __init__(self) -> None:
        type(self).made += 1

    def __call__(self, ctx: Context, call_next: Any) -> Any:
        steps.append("object")
        return call_next()


class AwaitedObject:
    """One whose call is awaited."""

    async def __call__(self, ctx: Context, call_next: Any) -> Any:
        steps.append("async object")
        return await call_next()


def named(ctx: Context, call_next: Any) -> Any:
    steps.append("named")
    return call_next()


@both
def test_they_may_be_dotted_paths_objects_and_classes_of_which_one_object_is_made(configure, function):
    here = __name__
    configure(MIDDLEWARE=[f"{here}.named", f"{here}.Counting"])
    run(function, middleware=[f"{here}.named", Counting, AwaitedObject(), f"{here}.Counting"])
    assert steps == ["named", "object", "named", "object", "async object", "object", "handler"]
    before = Counting.made
    for _ in range(3):
        run(function, middleware=[Counting])
    assert Counting.made - before <= 1


@both
def test_extras_appear_in_the_context_and_inner_ones_win(function):
    seen: list[Any] = []

    def look(ctx: Context, call_next: Any) -> Any:
        seen.append(dict(ctx.extra))
        return call_next()

    state = run(function, middleware=[plain("outer", a=1, b=1), look, awaited("inner", b=2, c=3)])
    assert (state.result, seen) == ({"a": 1, "b": 2, "c": 3}, [{"a": 1, "b": 1}])
    assert run(function).result == {}


def test_names_of_the_contexts_own_are_never_replaced(caplog):
    def forged(ctx: Context) -> list[Any]:
        return [ctx.id, ctx.attempt, dict(ctx.extra), ctx.result("mine").value]

    state = run(forged, strict_return=False, middleware=[plain("m", id="x", attempt=9, result=None, kept=1)])
    assert state.result == [state.id, 1, {"kept": 1}, "mine"]
    assert "passed on 'attempt', 'id', 'result', which are attributes of the context" in caplog.text


def test_extras_cannot_be_written_by_the_handler():
    def writes(ctx: Context) -> None:
        ctx.extra["a"] = 1  # type: ignore[index]

    assert "does not support item assignment" in (run(writes).error or "")


tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


def set_tenant(ctx: Context, call_next: Any) -> Any:
    token = tenant.set(f"tenant of {ctx.type}")
    try:
        return call_next(tenant=tenant.get())
    finally:
        tenant.reset(token)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
@pytest.mark.parametrize("runs", [run, in_a_worker])
def test_a_context_variable_reaches_the_handler_and_is_gone_after_it(configure, is_async, runs):
    def of_tenant(ctx: Context) -> list[str]:
        return [tenant.get(), ctx.extra["tenant"]]

    async def aof_tenant(ctx: Context) -> list[str]:
        return of_tenant(ctx)

    configure(MIDDLEWARE=[set_tenant])
    assert runs(aof_tenant if is_async else of_tenant).result == ["tenant of attempts.case"] * 2
    assert tenant.get() == "nobody"


@both
def test_one_that_does_not_go_on_gives_the_outcome(function):
    def instead(ctx: Context, call_next: Any) -> Any:
        return ctx.queue([add(a=1, b=2)])

    async def ainstead(ctx: Context, call_next: Any) -> Any:
        return ctx.result("instead")

    def refuse(ctx: Context, call_next: Any) -> Any:
        raise Abort("not for this tenant")

    state = run(function, middleware=[plain("outer"), instead])
    assert (state.status, state.result, steps) == ("success", None, ["outer before", "outer after"])
    assert run(function, middleware=[ainstead]).result == "instead"
    assert run(function, middleware=[refuse], retry=Retry(attempts=5)).reason == "aborted"


@both
@pytest.mark.parametrize("kind", [plain, awaited])
def test_one_that_raises_fails_the_attempt_as_a_handler_would(function, kind):
    def raises(ctx: Context, call_next: Any) -> Any:
        call_next()
        raise LookupError("no tenant")

    advice: list[Any] = []

    def advise(error: Exception, info: Any) -> None:
        advice.append((type(error), info.attempt))

    state = run(function, middleware=[kind("outer"), raises], on_failure=advise)
    assert (state.status, state.error) == ("dead", "LookupError: no tenant")
    assert steps == ["outer before", "handler", "outer after"]
    assert advice == [(LookupError, 1)]
    assert "no tenant" in Attempt.objects.get().traceback


@pytest.mark.django_db(transaction=True)
@both
@pytest.mark.parametrize("kind", [plain, awaited])
@pytest.mark.parametrize("error", [StopIteration, GeneratorExit])
def test_an_error_that_asyncio_does_not_pass_on_ends_the_attempt_too(configure, function, kind, error):
    def raises(ctx: Context, call_next: Any) -> Any:
        call_next()
        raise error("no luck")

    configure()
    state = in_a_worker(function, middleware=[kind("outer"), raises])
    assert (state.status, steps) == ("dead", ["outer before", "handler", "outer after"])
    as_raised = f"{error.__name__}: no luck"
    assert state.error in (as_raised, "RuntimeError: coroutine raised StopIteration")


def fails(ctx: Context) -> Any:
    ctx.queue([add(a=1, b=2)])
    raise ValueError("no luck")


async def afails(ctx: Context) -> Any:
    fails(ctx)


def forgive(ctx: Context, call_next: Any) -> Any:
    try:
        return call_next()
    except ValueError as error:
        return ctx.result(f"forgiven: {error}")


async def aforgive(ctx: Context, call_next: Any) -> Any:
    try:
        return await call_next()
    except ValueError as error:
        return ctx.result(f"forgiven: {error}")


@pytest.mark.parametrize("function", [fails, afails])
@pytest.mark.parametrize("middleware", [forgive, aforgive])
def test_one_that_catches_an_error_drops_the_instruction_of_the_handler(function, middleware):
    assert run(function, middleware=[middleware]).result == "forgiven: no luck"


@pytest.mark.parametrize("kind", [plain, awaited])
def test_one_may_call_the_handler_again(kind):
    def at_second(ctx: Context) -> str:
        steps.append("handler")
        if steps.count("handler") == 1:
            ctx.result("lost")
            raise ValueError("once")
        return "second"

    def again(ctx: Context, call_next: Any) -> Any:
        try:
            return call_next()
        except ValueError:
            return call_next()

    assert run(at_second, middleware=[again, kind("inner")]).result == "second"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", [plain, awaited])
def test_an_async_handler_is_cancelled_within_any_middleware(configure, kind):
    async def sleeps() -> None:
        steps.append("handler")
        try:
            await asyncio.sleep(60)
        finally:
            steps.append("cancelled")

    configure(SHUTDOWN_GRACE=0.05)
    state = in_a_worker(sleeps, timeout=0.05, middleware=[kind("m")])
    assert state.error == "AttemptTimeout: the attempt ran longer than its timeout of 0.05 seconds."
    assert steps == ["m before", "handler", "cancelled", "m after"]
    steps.clear()
    handle = enqueue(work(name="attempts.case", middleware=[kind("m")])(sleeps)())
    with running_worker(concurrency=1):
        eventually(lambda: "handler" in steps)
    assert handle.state().status == "pending"
    cancel(handle.id)
    eventually(lambda: steps[-1] == "m after")


@pytest.mark.django_db(transaction=True)
def test_an_async_handler_does_not_start_once_its_time_is_over_within_a_plain_middleware():
    over = threading.Event()

    def waits(ctx: Context, call_next: Any) -> Any:
        assert ctx.signal.wait(30)
        try:
            return call_next()
        finally:
            over.set()

    async def sleeps() -> None:
        steps.append("handler")
        await asyncio.sleep(5)

    state = in_a_worker(sleeps, timeout=0.05, middleware=[waits])
    assert state.error == "AttemptTimeout: the attempt ran longer than its timeout of 0.05 seconds."
    assert over.wait(30)
    assert steps == []


def wrote(ctx: Context, call_next: Any) -> Any:
    Order.objects.create(reference="middleware")
    steps.append(f"depth {len(connection.atomic_blocks)}")
    return call_next()


@pytest.mark.parametrize("outer", [plain, awaited])
def test_those_of_an_atomic_work_run_inside_its_transaction(outer):
    depth = len(connection.atomic_blocks)

    def breaks() -> None:
        raise ValueError("undo")

    run(breaks, atomic=True, middleware=[outer("m"), wrote])
    assert f"depth {depth + 1}" in steps
    assert not Order.objects.exists()


def test_those_of_a_staged_work_surround_the_attempt_and_their_error_undoes_complete():
    def staged(ctx: Context) -> Any:
        with ctx.prepare():
            steps.append("prepare")
        with ctx.complete():
            steps.append("complete")
            Order.objects.create(reference="complete")
            return ctx.result("done")

    def raises(ctx: Context, call_next: Any) -> Any:
        call_next()
        raise LookupError("after all")

    assert run(staged, middleware=[raises]).error == "LookupError: after all"
    assert not Order.objects.exists()
    steps.clear()
    assert run(staged, middleware=[plain("m"), awaited("n")]).result == "done"
    assert steps == ["m before", "n before", "prepare", "complete", "n after", "m after"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", [plain, awaited])
def test_a_plain_handler_keeps_its_thread_and_an_async_one_its_loop(configure, kind):
    configure()

    def where() -> str:
        with transaction.atomic():
            Order.objects.create(reference="here")
        return threading.current_thread().name

    async def awhere() -> str:
        await Order.objects.acreate(reference="here")
        return threading.current_thread().name

    assert in_a_worker(where, middleware=[kind("m")]).result == "ayework-slot-0"
    assert in_a_worker(awhere, middleware=[kind("m")]).result == "ayework-async"
    assert Order.objects.count() == 2
