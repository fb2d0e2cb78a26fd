"""Middlewares surround the handler of every attempt, in any mix of plain and async functions."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from typing import Any

import pytest
from django.db import connection, transaction

from django_ayework import Abort, Context, Retry, WorkState, cancel, enqueue, work
from django_ayework.models import Attempt
from django_ayework.testing import drain, perform, running_worker
from tests.app.models import Order
from tests.app.works import add
from tests.processes import eventually

pytestmark = pytest.mark.django_db
ONCE = Retry(attempts=1)

#: What ran, in order.
steps: list[str] = []


@pytest.fixture(autouse=True)
def fresh() -> None:
    steps.clear()


def plain(name: str, **extra: Any) -> Any:
    """A middleware that notes when it is entered and left."""

    def middleware(ctx: Context, call_next: Any) -> Any:
        steps.append(f"{name} before")
        try:
            return call_next(**extra)
        finally:
            steps.append(f"{name} after")

    return middleware


def awaited(name: str, **extra: Any) -> Any:
    """The same as an async function."""

    async def middleware(ctx: Context, call_next: Any) -> Any:
        steps.append(f"{name} before")
        try:
            return await call_next(**extra)
        finally:
            steps.append(f"{name} after")

    return middleware


def handler(ctx: Context) -> dict[str, Any]:
    steps.append("handler")
    return dict(ctx.extra)


async def ahandler(ctx: Context) -> dict[str, Any]:
    steps.append("handler")
    return dict(ctx.extra)


def run(function: Any, **options: Any) -> WorkState:
    """Declare a handler, queue it, run it; return its state."""
    options = {"name": "attempts.case", "retry": ONCE, **options}
    handle = enqueue(work(**options)(function)())
    drain()
    state = handle.state()
    assert state is not None
    return state


def in_a_worker(function: Any, **options: Any) -> WorkState:
    """The same, run by a real worker."""
    handle = enqueue(work(name="attempts.case", retry=ONCE, **options)(function)())
    with running_worker(concurrency=2):
        eventually(lambda: handle.state().status in ("success", "dead"))
    return handle.state()


both = pytest.mark.parametrize("function", [handler, ahandler])
mixes = pytest.mark.parametrize(
    "kinds", [(plain, plain), (plain, awaited), (awaited, plain), (awaited, awaited)]
)
ONION = ["outer before", "inner before", "handler", "inner after", "outer after"]


# The onion


@both
@mixes
def test_the_first_is_the_outermost(function, kinds):
    outer, inner = kinds
    assert run(function, middleware=[outer("outer"), inner("inner")]).status == "success"
    assert steps == ONION


@both
@mixes
def test_the_settings_surround_the_types(configure, function, kinds):
    outer, inner = kinds
    configure(MIDDLEWARE=[outer("outer")])
    run(function, middleware=[inner("inner")])
    assert steps == ONION


@pytest.mark.django_db(transaction=True)
@both
@mixes
def test_a_worker_runs_them_as_well(configure, function, kinds):
    outer, inner = kinds
    configure(MIDDLEWARE=[outer("outer", a=1, b=1)])
    assert in_a_worker(function, middleware=[inner("inner", b=2)]).result == {"a": 1, "b": 2}
    assert steps == ONION


@both
@mixes
def test_perform_runs_them_as_well(function, kinds):
    outer, inner = kinds
    performed = work(name="attempts.case", middleware=[outer("outer", a=1), inner("inner")])(function)()
    assert perform(performed).result == {"a": 1}
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
def test_they_may_be_dotted_paths_objects_and_classes(configure, function):
    here = __name__
    configure(MIDDLEWARE=[f"{here}.named", f"{here}.Counting"])
    run(function, middleware=[f"{here}.named", Counting, AwaitedObject(), f"{here}.Counting"])
    assert steps == ["named", "object", "named", "object", "async object", "object", "handler"]


def test_a_class_is_made_into_an_object_once():
    before = Counting.made
    for _ in range(3):
        run(handler, middleware=[Counting])
    assert Counting.made - before <= 1


# Extras


@both
def test_extras_appear_in_the_context_and_inner_ones_win(function):
    state = run(function, middleware=[plain("outer", a=1, b=1), awaited("inner", b=2, c=3)])
    assert state.result == {"a": 1, "b": 2, "c": 3}


def test_an_inner_middleware_sees_what_outer_ones_passed_on():
    seen: list[Any] = []

    def look(ctx: Context, call_next: Any) -> Any:
        seen.append(dict(ctx.extra))
        return call_next()

    run(handler, middleware=[plain("outer", a=1), look])
    assert seen == [{"a": 1}]


def test_there_are_no_extras_without_a_middleware():
    assert run(handler).result == {}


def test_names_of_the_contexts_own_are_never_replaced(caplog):
    def forged(ctx: Context) -> list[Any]:
        return [ctx.id, ctx.attempt, dict(ctx.extra), ctx.result("mine").value]

    state = run(forged, strict_return=False, middleware=[plain("m", id="x", attempt=9, result=None, kept=1)])
    assert state.result == [state.id, 1, {"kept": 1}, "mine"]
    assert "passed on 'attempt', 'id', 'result', which the context says itself" in caplog.text


def test_extras_cannot_be_written_by_the_handler():
    def writes(ctx: Context) -> None:
        ctx.extra["a"] = 1  # type: ignore[index]

    assert "does not support item assignment" in (run(writes).error or "")


# What a middleware may decide


@both
def test_one_that_does_not_go_on_gives_the_outcome(function):
    def instead(ctx: Context, call_next: Any) -> Any:
        return ctx.queue([add(a=1, b=2)])

    async def ainstead(ctx: Context, call_next: Any) -> Any:
        return ctx.result("instead")

    state = run(function, middleware=[plain("outer"), instead])
    assert (state.status, state.result, steps) == ("success", None, ["outer before", "outer after"])
    assert run(function, middleware=[ainstead]).result == "instead"


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


@both
def test_one_may_say_what_a_handler_may(function):
    def refuse(ctx: Context, call_next: Any) -> Any:
        raise Abort("not for this tenant")

    assert run(function, middleware=[refuse], retry=Retry(attempts=5)).reason == "aborted"


def fails(ctx: Context) -> Any:
    ctx.queue([add(a=1, b=2)])
    raise ValueError("no luck")


async def afails(ctx: Context) -> Any:
    ctx.queue([add(a=1, b=2)])
    raise ValueError("no luck")


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
def test_one_that_forgives_an_error_forgets_what_the_handler_had_built(function, middleware):
    assert run(function, middleware=[middleware]).result == "forgiven: no luck"


@pytest.mark.parametrize("kind", [plain, awaited])
def test_one_may_try_again(kind):
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


def test_an_exit_within_an_async_middleware_fails_the_attempt():
    def exits() -> None:
        raise SystemExit(3)

    assert run(exits, middleware=[awaited("m")]).error == "SystemExit: 3"


# Transactions


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


def test_those_of_a_staged_work_surround_the_whole_attempt():
    def staged(ctx: Context) -> Any:
        with ctx.prepare():
            steps.append("prepare")
        with ctx.complete():
            steps.append("complete")
            return ctx.result("done")

    state = run(staged, middleware=[plain("m"), awaited("n")])
    assert state.result == "done"
    assert steps == ["m before", "n before", "prepare", "complete", "n after", "m after"]


def test_an_error_after_complete_undoes_it():
    def staged(ctx: Context) -> Any:
        with ctx.complete():
            Order.objects.create(reference="undone")
            return ctx.result("done")

    def raises(ctx: Context, call_next: Any) -> Any:
        call_next()
        raise LookupError("after all")

    assert run(staged, middleware=[raises]).error == "LookupError: after all"
    assert not Order.objects.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", [plain, awaited])
def test_a_plain_handler_keeps_its_thread_and_an_async_one_its_loop(configure, kind):
    """So database connections, and the loop's own objects, are those they are without."""
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


# Stopping


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", [plain, awaited])
def test_an_async_handler_is_cancelled_for_real_within_any_middleware(configure, kind):
    configure()

    async def sleeps() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            steps.append("cancelled")
            raise

    state = in_a_worker(sleeps, timeout=0.05, middleware=[kind("m")])
    assert state.error == "AttemptTimeout: the attempt ran longer than its timeout of 0.05 seconds."
    assert steps == ["m before", "cancelled", "m after"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", [plain, awaited])
def test_a_worker_that_stops_cancels_an_async_handler_within_any_middleware(configure, kind):
    configure(SHUTDOWN_GRACE=0.05)

    async def sleeps() -> None:
        steps.append("handler")
        await asyncio.sleep(60)

    handle = enqueue(work(name="attempts.case", middleware=[kind("m")])(sleeps)())
    with running_worker(concurrency=1):
        eventually(lambda: "handler" in steps)
    assert handle.state().status == "pending"
    cancel(handle.id)
    eventually(lambda: steps[-1] == "m after")


# Examples of the guide

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


def set_tenant(ctx: Context, call_next: Any) -> Any:
    token = tenant.set(f"tenant of {ctx.type}")
    try:
        return call_next(tenant=tenant.get())
    finally:
        tenant.reset(token)


def of_tenant(ctx: Context) -> list[str]:
    return [tenant.get(), ctx.extra["tenant"]]


async def aof_tenant(ctx: Context) -> list[str]:
    return [tenant.get(), ctx.extra["tenant"]]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("function", [of_tenant, aof_tenant])
@pytest.mark.parametrize("runs", [run, in_a_worker])
def test_a_context_variable_reaches_the_handler_and_is_gone_after_it(configure, function, runs):
    configure(MIDDLEWARE=[set_tenant])
    assert runs(function).result == ["tenant of attempts.case"] * 2
    assert tenant.get() == "nobody"
