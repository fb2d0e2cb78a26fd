"""What a handler says: the types of instructions follow from the works they queue."""
# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Never, assert_type

from django_ayework import Context, Count, Instruction, Queue, Result, Status, Void, dependency
from django_ayework.define.requests import GateRequest
from tests.typing.builders import add, clean, fan_out, receipt


def results(ctx: Context) -> None:
    """A result is its value, to the work and to the group."""
    assert_type(ctx.result(1), Result[int])
    assert_type(ctx.result("a", final=True), Result[str])
    assert_type(ctx.result([1], append=lambda existing: [*(existing or []), 1]), Result[list[int]])
    assert_type(ctx.void(), Void)
    assert_type(widened(ctx), Instruction[int | None, int | None])


def widened(ctx: Context) -> Instruction[int | None, int | None]:
    """A result is an instruction, also of a wider type."""
    return ctx.result(1)


def queues(ctx: Context) -> None:
    """A queue contributes what its works contribute."""
    assert_type(ctx.queue([add(a=1, b=2)]), Queue[int])
    assert_type(ctx.queue(add(a=1, b=2)), Queue[int])
    assert_type(ctx.queue(add(a=number, b=2) for number in range(3)), Queue[int])
    assert_type(ctx.queue([fan_out()]), Queue[int])
    assert_type(ctx.queue([clean()]), Queue[Never])
    assert_type(ctx.queue([add(a=1, b=2), clean()]), Queue[int])
    assert_type(ctx.queue([add(a=1, b=2), ctx.queue([add(a=3, b=4)]), ctx.result(5)]), Queue[int])
    assert_type(ctx.queue([add(a=1, b=2)], delay=5, priority=10, queue="mail"), Queue[int])


def mixed(ctx: Context) -> Queue[int | str]:
    """Works that contribute different types contribute either."""
    return ctx.queue([add(a=1, b=2), receipt(order_id=1)])


def chains(ctx: Context) -> None:
    """Each ``.next`` adds what its works contribute."""
    first = ctx.queue([add(a=1, b=2), add(a=3, b=4)])
    assert_type(first.next([receipt(order_id=1)]), Queue[int | str])
    assert_type(first.next(add(a=5, b=6), "all-done", run_at=datetime.now(UTC)), Queue[int])
    assert_type(first.next([receipt(order_id=1)], Count(1, of="success")).next([clean()]), Queue[int | str])


def gates(ctx: Context) -> None:
    """A gate contributes what the works it releases contribute."""
    watched = [add(a=1, b=2), receipt(order_id=1)]
    assert_type(dependency(on=watched, queue=[add(a=1, b=2)]), GateRequest[int])
    assert_type(dependency(on=["some-id"], queue=[clean()], condition="all-done"), GateRequest[Never])
    assert_type(
        dependency(on=[add.enqueue(a=1, b=2)], queue=[receipt(order_id=1)], timeout=60), GateRequest[str]
    )
    assert_type(ctx.queue([dependency(on=watched, queue=[add(a=1, b=2)], on_unmet="wait")]), Queue[int])


async def questions(ctx: Context) -> None:
    """What a handler may ask."""
    assert_type(ctx.id, str)
    assert_type(ctx.attempt, int)
    assert_type(ctx.parent, str | None)
    assert_type(ctx.claim("key"), bool)
    assert_type(await ctx.aclaim("key"), bool)
    assert_type(ctx.states(["a"]), list[Status | None])
    assert_type(ctx.signal.wait(1), bool)


def refused(ctx: Context) -> None:
    """Mistakes that the checkers see."""
    ctx.queue([add])  # type: ignore[arg-type]  # expected to be refused: the type itself, not a request
    ctx.queue([1])  # type: ignore[arg-type]  # expected to be refused: no work
    ctx.queue([add(a=1, b=2)], dealy=5)  # type: ignore[call-arg]  # expected to be refused: misspelt
    ctx.queue([add(a=1, b=2)], id="a")  # type: ignore[call-arg]  # expected to be refused: only for enqueue
    ctx.result(1).next([add(a=1, b=2)])  # type: ignore[attr-defined]  # expected to be refused: not a queue
    ctx.queue([add(a=1, b=2)]).next([clean()], "any")  # type: ignore[arg-type]  # expected to be refused


def wrong_contribution(ctx: Context) -> Queue[str]:
    """The contribution is checked against the annotation."""
    return ctx.queue([add(a=1, b=2)])  # type: ignore[list-item]  # expected to be refused: add contributes int


def existing_kinds(instruction: Instruction[int, str]) -> Instruction[object, Any]:
    """Instructions are covariant in both."""
    return instruction
