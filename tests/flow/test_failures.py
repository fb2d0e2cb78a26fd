"""What counts as a failed attempt, and rows whose stored content cannot be used: they disturb no others."""

from __future__ import annotations

import re
from typing import Any

import pytest

from django_ayework import Abort, Context, Defer, Instruction, Reschedule, Retry, enqueue, retry, work
from django_ayework.models import Attempt, Group, Work
from django_ayework.testing import drain
from tests.app.works import add, fail
from tests.marks import on_sqlite

pytestmark = pytest.mark.django_db

BUILT: dict[str, Any] = {
    "queue": lambda ctx: ctx.queue([add(a=1, b=2)]),
    "result": lambda ctx: ctx.result(1),
    "void": lambda ctx: ctx.void(),
    "continue_with": lambda ctx: ctx.continue_with(add(a=1, b=2)),
}


@on_sqlite
@pytest.mark.parametrize(
    ("name", "returned"), [*((name, None) for name in BUILT), ("queue", 5), ("queue", "another")]
)
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


@on_sqlite
@pytest.mark.parametrize(
    ("of_system", "of_type", "status", "result"),
    [(True, False, "success", "fine"), (False, None, "success", "fine"), (False, True, "dead", None)],
    ids=["loose type", "loose system", "strict type"],
)
def test_the_type_decides_over_the_system_whether_returns_are_strict(
    outcome, configure, of_system, of_type, status, result
):
    @work(name="t.failures.loose", strict_return=of_type)
    def loose(ctx: Context):
        ctx.queue([add(a=1, b=2)])
        return ctx.result("fine")

    configure(STRICT_RETURN=of_system)
    state = outcome(loose())
    assert (state.status, state.result, Work.objects.count()) == (status, result, 1)


@on_sqlite
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


RETURNED = "InvalidInstruction: the handler of 't.failures.returns' returned "
#: Handlers, and the errors of what they return.
RETURNS: dict[str, tuple[Any, str]] = {
    "work": (
        lambda: add(a=1, b=2),
        f"{RETURNED}the work 'shop.add' itself; "
        "return ctx.queue([...]) to queue it, with ctx as the handler's first parameter.",
    ),
    "list": (
        lambda: [add(a=1, b=2), add(a=3, b=4)],
        f"{RETURNED}a list of works; return "
        "ctx.queue([...]) to queue them, with ctx as the handler's first parameter.",
    ),
    "tuple": (
        lambda ctx: (ctx.result(1), add(a=1, b=2)),
        f"{RETURNED}a tuple of works; return "
        "ctx.queue([...]) to queue them, with ctx as the handler's first parameter.",
    ),
    **{
        f"{type(said).__name__}, {kind}": (
            handler,
            f"{RETURNED}{type(said).__name__}(…), "
            f"which has no effect when it is returned; raise it: raise {type(said).__name__}(…).",
        )
        for said in (Defer(delay=5), Reschedule(delay=5), Abort("no card"))
        for kind, handler in {"plain": lambda said=said: said, "context": lambda ctx, said=said: said}.items()
    },
    "not awaited": (
        not_awaited,
        f"{RETURNED}a coroutine that it did not await; write return await fetch(…).",
    ),
    "coroutine": (
        lambda: fetch(),
        "InvalidInstruction: the handler of 't.failures.returns' is a plain function that returned a "
        "coroutine; declare it with async def, and write return await fetch(…).",
    ),
    "next of a work": (
        lambda ctx: ctx.queue([add(a=1, b=2).next([add(a=3, b=4)])]),
        "AttributeError: <WorkRequest shop.add …> has no .next, which is of ctx.queue(…) only: write "
        "return ctx.queue([…]).next([…]).",
    ),
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
}


@on_sqlite
@pytest.mark.parametrize(("handler", "error"), RETURNS.values(), ids=RETURNS)
def test_what_a_handler_may_not_return_fails_the_attempt_and_nothing_is_queued(
    outcome, configure, handler, error
):
    configure(MAX_PAYLOAD=100)
    state = outcome(work(name="t.failures.returns")(handler)())
    assert (state.status, state.reason) == ("dead", "exhausted")
    assert re.fullmatch(re.escape(error).replace("\\ …>", " .*>").replace("…", ".*"), state.error)
    assert (Work.objects.count(), Group.objects.count()) == (1, 0)


def test_an_error_that_no_database_takes_is_kept_escaped(outcome):
    state = outcome(fail(message="nul \x00 and half a pair \ud800"))
    assert state.error == "RuntimeError: nul \\x00 and half a pair \\ud800"
    assert "\x00" not in Attempt.objects.get().traceback


# --- rows whose stored content cannot be used -----------------------------------------------------------


def stored(**columns: Any) -> Any:
    """Return a work whose row has other content than was queued."""
    handle = enqueue(add(a=1, b=2), retry=Retry(attempts=5))
    Work.objects.filter(id=handle.id).update(**columns)
    return handle


@on_sqlite
@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("garbage", "NotDecodable: expected JSON text, got"),
        ("", "NotDecodable: expected JSON text, got"),
        ("[1,2]", "NotDecodable: expected a stored input to be arguments by name, got: '[1,2]'."),
        ('{"a":1}', "TypeError: shop.add: missing a required argument: 'b'; expected shop.add(a, b)"),
        ('{"a":1,"b":2,"c":3}', "TypeError: shop.add: got an unexpected keyword argument 'c'; expected"),
    ],
    ids=["garbage", "empty", "list", "missing", "extra"],
)
def test_a_row_whose_input_cannot_be_used_dies_alone_and_can_be_mended(text, error):
    good, bad = enqueue(add(a=1, b=2)), stored(input=text)
    report = drain(raises=False)
    assert (report.succeeded, report.dead, good.result(timeout=0)) == (1, 1, 3)
    state = bad.state()
    assert (state.status, state.reason) == ("dead", "bad_input")
    assert state.error.startswith(error)
    assert Work.objects.get(id=bad.id).input == text
    assert Attempt.objects.get().outcome == "died"
    retry(bad.id, {"a": 3, "b": 4})
    drain()
    assert bad.result(timeout=0) == 7


class Strange:
    """A codec that cannot read what it has written."""

    def encode(self, value: Any) -> str:
        return "{}" if isinstance(value, dict) else "5"

    def decode(self, text: str) -> Any:
        return {} if text == "{}" else {}[text]


@on_sqlite
def test_what_a_codec_of_ones_own_cannot_read():
    seen: list[Any] = []
    strange = work(name="t.bad.codec", codec=Strange(), on_event=seen.append)(lambda: 5)
    handle = enqueue(strange())
    assert drain().succeeded == 1
    assert handle.state().result == "5", "a result is shown as its text"
    assert [event.kind for event in seen] == ["queued", "started", "succeeded"]
    Work.objects.update(type="shop.add", result="garbage")
    assert handle.state().result == "garbage"
    handle = enqueue(strange())
    Work.objects.filter(id=handle.id).update(input="5")
    assert drain(raises=False).dead == 1
    assert (handle.state().reason, handle.state().error) == ("bad_input", "KeyError: '5'")


@on_sqlite
@pytest.mark.parametrize(
    ("options", "attempts", "timeout"),
    [("garbage", 3, None), ('{"retry":[5,1.0,2.0,30.0,0.5,"newer"],"timeout":7.0,"newer":{"a":1}}', 5, 7.0)],
    ids=["garbage", "of a newer version"],
)
def test_options_that_cannot_be_read_are_left_out_and_the_others_apply(options, attempts, timeout):
    handle = stored(options=options)
    assert (handle.state().attempts, handle.state().timeout) == (attempts, timeout)
    drain()
    assert handle.result(timeout=0) == 3
