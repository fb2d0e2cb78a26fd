"""What counts as a failed attempt."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from django_ayework import Abort, Context, Defer, Instruction, Reschedule, work
from django_ayework.models import Attempt, Group, Work
from tests.app.works import add, fail

pytestmark = pytest.mark.django_db


# --- what a handler may not return ----------------------------------------------------------------------


BUILT: dict[str, Callable[[Context], object]] = {
    "queue": lambda ctx: ctx.queue([add(a=1, b=2)]),
    "result": lambda ctx: ctx.result(1),
    "void": lambda ctx: ctx.void(),
    "continue_with": lambda ctx: ctx.continue_with(add(a=1, b=2)),
}


@pytest.mark.parametrize("returned", [None, 5, "another"])
@pytest.mark.parametrize("name", BUILT)
def test_an_instruction_that_is_not_returned_fails_the_attempt(outcome, name, returned):
    @work(name="t.failures.forgetful")
    def forgetful(ctx: Context) -> Any:
        BUILT[name](ctx)
        return ctx.result(2) if returned == "another" else returned

    state = outcome(forgetful())
    assert (state.status, state.reason) == ("dead", "exhausted")
    assert state.error == (
        f"InvalidInstruction: the handler of 't.failures.forgetful' built ctx.{name}(…) that was not "
        f"returned; write return ctx.{name}(…), or put it into the list of a returned ctx.queue(…)."
    )
    assert Work.objects.count() == 1


@pytest.mark.parametrize(
    ("of_system", "of_type", "status"),
    [(True, False, "success"), (False, None, "success"), (False, True, "dead")],
    ids=["loose type", "loose system", "strict type"],
)
def test_the_type_decides_over_the_system_whether_returns_are_strict(
    outcome, configure, of_system, of_type, status
):
    @work(name="t.failures.loose", strict_return=of_type)
    def loose(ctx: Context):
        ctx.queue([add(a=1, b=2)])
        return ctx.result("fine")

    configure(STRICT_RETURN=of_system)
    state = outcome(loose())
    assert (state.status, state.result) == (status, "fine" if status == "success" else None)
    assert Work.objects.count() == 1


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("nested", [False, True])
def test_the_instruction_of_another_call_is_refused(outcome, nested, strict):
    kept: list[Instruction[Any, Any]] = []

    @work(name="t.failures.foreign", strict_return=strict)
    def foreign(ctx: Context):
        kept.append(ctx.queue([add(a=1, b=1)]))
        return ctx.queue([kept[0]]) if nested else kept[0]

    assert outcome(foreign()).status == "success"
    assert outcome(foreign()).error == (
        "InvalidInstruction: the handler of 't.failures.foreign' returned an instruction of another context; "
        "build it with the ctx that this call was given."
    )
    assert Work.objects.filter(type="shop.add").count() == 1


async def fetch() -> int:
    return 1


async def not_awaited() -> Any:
    return fetch()


def returning(said: Exception) -> dict[str, Callable[..., Any]]:
    return {"plain": lambda: said, "context": lambda ctx: said}


#: Handlers, and the errors of what they return.
RETURNS: dict[str, tuple[Callable[..., Any], str]] = {
    "work": (
        lambda: add(a=1, b=2),
        "InvalidInstruction: the handler of 't.failures.returns' returned the work 'shop.add' itself; "
        "return ctx.queue([...]) to queue it, with ctx as the handler's first parameter.",
    ),
    "list": (
        lambda: [add(a=1, b=2), add(a=3, b=4)],
        "InvalidInstruction: the handler of 't.failures.returns' returned a list of works; return "
        "ctx.queue([...]) to queue them, with ctx as the handler's first parameter.",
    ),
    "tuple": (
        lambda ctx: (ctx.result(1), add(a=1, b=2)),
        "InvalidInstruction: the handler of 't.failures.returns' returned a tuple of works; return "
        "ctx.queue([...]) to queue them, with ctx as the handler's first parameter.",
    ),
    **{
        f"{type(said).__name__}, {kind}": (
            handler,
            f"InvalidInstruction: the handler of 't.failures.returns' returned {type(said).__name__}(…), "
            f"which has no effect when it is returned; raise it: raise {type(said).__name__}(…).",
        )
        for said in (Defer(delay=5), Reschedule(delay=5), Abort("no card"))
        for kind, handler in returning(said).items()
    },
    "not awaited": (
        not_awaited,
        "InvalidInstruction: the handler of 't.failures.returns' returned a coroutine that it did not "
        "await; write return await fetch(…).",
    ),
    "coroutine": (
        lambda: fetch(),
        "InvalidInstruction: the handler of 't.failures.returns' is a plain function that returned a "
        "coroutine; declare it with async def, and write return await fetch(…).",
    ),
    "next of a result": (
        lambda ctx: ctx.result(1).next([add(a=1, b=2)]),
        "AttributeError: ctx.result(…) has no .next, which is of ctx.queue(…) only: write "
        "return ctx.queue([…]).next([…]).",
    ),
    "next of a work": (
        lambda ctx: ctx.queue([add(a=1, b=2).next([add(a=3, b=4)])]),
        "AttributeError: <WorkRequest shop.add …> has no .next, which is of ctx.queue(…) only: write "
        "return ctx.queue([…]).next([…]).",
    ),
    "type": (lambda ctx: ctx.queue([add]), "…works built by calling their type, such as add(a=1, b=2)…"),
    "result": (
        lambda: {"ok": 1, "bad": object()},
        "NotEncodable: the result of 't.failures.returns' cannot be stored: expected a value that can be "
        "stored, got: object at result['bad']; pass plain data, or describe its class in a CustomType",
    ),
    "large result": (
        lambda: "x" * 100,
        "PayloadTooLarge: expected the result of 't.failures.returns' to have at most 100 characters once "
        "encoded (AYEWORK['MAX_PAYLOAD']), got: 102; store it elsewhere and pass a reference.",
    ),
    "child": (lambda ctx: ctx.queue([add(a=1, b=2), add(a=object(), b=2)]), "…input['a']…"),
    "append": (
        lambda ctx: ctx.queue([add(a=1, b=2), ctx.result(1, append=lambda existing: existing + 1)]),
        "TypeError: unsupported operand…",
    ),
}


@pytest.mark.parametrize(("handler", "error"), RETURNS.values(), ids=RETURNS)
def test_what_a_handler_may_not_return_fails_the_attempt_and_nothing_is_queued(
    outcome, configure, handler, error
):
    configure(MAX_PAYLOAD=100)
    state = outcome(work(name="t.failures.returns")(handler)())
    assert (state.status, state.reason) == ("dead", "exhausted")
    assert re.fullmatch(re.escape(error).replace("\\ …>", " .*>").replace("…", ".*"), state.error)
    assert (Work.objects.count(), Group.objects.count()) == (1, 0)


# --- exceptions of every kind ---------------------------------------------------------------------------


def test_an_error_that_no_database_takes_is_kept_escaped_and_a_long_one_is_cut(outcome):
    state = outcome(fail(message="nul \x00 and half a pair \ud800"))
    assert state.error == "RuntimeError: nul \\x00 and half a pair \\ud800"
    assert "\x00" not in Attempt.objects.get().traceback
    error = outcome(fail(message="x" * 20_000)).error
    assert len(error) < 10_100
    assert error.endswith("… [truncated]")
