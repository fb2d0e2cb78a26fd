"""Middlewares surround the handler of every attempt, in any mix of plain and async functions."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import pytest

from django_ayework import Context, work
from django_ayework.testing import perform
from tests.attempts.middlewares import awaited, both, handler, in_a_worker, plain, run, steps

pytestmark = pytest.mark.django_db
mixes = pytest.mark.parametrize(
    "kinds", [(plain, plain), (plain, awaited), (awaited, plain), (awaited, awaited)]
)
ONION = ["outer before", "inner before", "handler", "inner after", "outer after"]


@pytest.fixture(autouse=True)
def fresh() -> None:
    steps.clear()


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
    assert "passed on 'attempt', 'id', 'result', which are attributes of the context" in caplog.text


def test_extras_cannot_be_written_by_the_handler():
    def writes(ctx: Context) -> None:
        ctx.extra["a"] = 1  # type: ignore[index]

    assert "does not support item assignment" in (run(writes).error or "")


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
