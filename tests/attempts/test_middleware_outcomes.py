"""Middlewares and how an attempt ends: they may decide it, and let a stop through."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from django_ayework import Abort, Context, Retry, cancel, enqueue, work
from django_ayework.models import Attempt
from django_ayework.testing import running_worker
from tests.app.works import add
from tests.attempts.middlewares import awaited, both, in_a_worker, plain, run, steps
from tests.processes import eventually

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def fresh() -> None:
    steps.clear()


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
