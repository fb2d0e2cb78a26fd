"""What a type of work knows: the inputs of its handler, its own result, its contribution to the group."""
# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from datetime import timedelta
from typing import Never, assert_type

from django_ayework import Context, Continue, Instruction, Queue, Result, Retry, Void, WorkRequest, work

# --- handlers that return instructions -----------------------------------------------------------------


@work(name="types.add")
def add(ctx: Context, a: int, b: int) -> Instruction[int, int]:
    return ctx.result(a + b)


assert_type(add(a=1, b=2), WorkRequest[int, int])
assert_type(add(1, 2), WorkRequest[int, int])
assert_type(add.name, str)


@work(name="types.add_later")
async def add_later(ctx: Context, a: int, b: int = 0) -> Result[int]:
    return ctx.result(a + b)


assert_type(add_later(a=1), WorkRequest[int, int])


@work(name="types.fan_out")
def fan_out(ctx: Context) -> Queue[int]:
    return ctx.queue([add(a=1, b=number) for number in range(3)])


assert_type(fan_out(), WorkRequest[None, int])


@work(name="types.nothing")
async def nothing(ctx: Context) -> Void:
    return ctx.void()


assert_type(nothing(), WorkRequest[None, Never])


@work(name="types.staged", atomic=False)
def staged(ctx: Context) -> Result[int]:
    """A block that returns ends the function, also to type checkers."""
    with ctx.prepare():
        pass
    with ctx.complete():
        return ctx.result(1)


assert_type(staged(), WorkRequest[int, int])


@work(name="types.staged_async")
async def staged_async(ctx: Context) -> Result[int]:
    assert_type(await ctx.aprepare(lambda: "read"), str)
    return await ctx.acomplete(lambda: ctx.result(1))


assert_type(staged_async(), WorkRequest[int, int])


@work(name="types.hand_over")
def hand_over(ctx: Context) -> Continue[str]:
    return ctx.continue_with(receipt(order_id=1))


assert_type(hand_over(), WorkRequest[None, str, str])


@work(name="types.hand_over_later")
async def hand_over_later(ctx: Context) -> Continue[str, str]:
    """Its chain ends with the result of the work after the next one."""
    return ctx.continue_with(hand_over())


assert_type(hand_over_later(), WorkRequest[None, str, str])


@work(name="types.hand_over_or_end")
def hand_over_or_end(ctx: Context, done: bool) -> Instruction[int | None, int | str, int | str]:
    return ctx.result(1) if done else ctx.continue_with(receipt(order_id=1))


assert_type(hand_over_or_end(done=True), WorkRequest[int | None, int | str, int | str])


@work(name="types.hand_over_sometimes")
def hand_over_sometimes(ctx: Context, done: bool) -> Continue[Never, None] | None:
    return None if done else ctx.continue_with(clean())


assert_type(hand_over_sometimes(done=True), WorkRequest[None, Never, None])


@work(name="types.sometimes")
def sometimes(ctx: Context, wanted: bool) -> Queue[int] | None:
    return ctx.queue([add(a=1, b=2)]) if wanted else None


assert_type(sometimes(wanted=True), WorkRequest[None, int])


@work(name="types.either")
async def either(ctx: Context, now: bool) -> Instruction[int | None, int]:
    return ctx.result(1) if now else ctx.queue([add(a=1, b=2)])


assert_type(either(now=True), WorkRequest[int | None, int])

# --- handlers that return plain values -----------------------------------------------------------------


@work(name="types.receipt")
def receipt(order_id: int) -> str:
    return f"receipt {order_id}"


assert_type(receipt(order_id=1), WorkRequest[str, str])


@work(name="types.receipt_later")
async def receipt_later(ctx: Context, order_id: int) -> str:
    return f"receipt {order_id}"


assert_type(receipt_later(order_id=1), WorkRequest[str, str])


@work(name="types.sizes")
async def sizes(*, names: list[str]) -> dict[str, int]:
    return {name: len(name) for name in names}


assert_type(sizes(names=["a"]), WorkRequest[dict[str, int], dict[str, int]])


@work(name="types.maybe")
def maybe(wanted: bool) -> str | None:
    return "yes" if wanted else None


assert_type(maybe(wanted=True), WorkRequest[str | None, str | None])


@work(name="types.clean")
def clean(days: int = 7) -> None: ...


assert_type(clean(), WorkRequest[None, Never])


@work(name="types.clean_later")
async def clean_later(ctx: Context) -> None: ...


assert_type(clean_later(), WorkRequest[None, Never])


@work(name="types.tick")
def tick() -> int:
    return 1


assert_type(tick(), WorkRequest[int, int])

# --- options -------------------------------------------------------------------------------------------


def advise(error: Exception, info: object) -> str | None:
    return "abort" if isinstance(error, ValueError) else None


@work(
    name="types.mail",
    queue="mail",
    retry=Retry(attempts=5, max=timedelta(minutes=5)),
    timeout=3,
    expires=timedelta(hours=1),
    options=lambda **given: {"priority": len(given)},
    on_failure=advise,
    skip_queue=True,
)
def mail(ctx: Context, to: str) -> Instruction[str, str]:
    return ctx.result(to)


assert_type(mail(to="a@example.com"), WorkRequest[str, str])

# --- wrong calls ---------------------------------------------------------------------------------------

add(a="1", b=2)  # type: ignore[arg-type]  # expected to be refused: a is an int
add(a=1)  # type: ignore[call-arg]  # expected to be refused: b is missing
add(a=1, b=2, c=3)  # type: ignore[call-arg]  # expected to be refused: there is no c
add.enqueue(a=1, b=None)  # type: ignore[arg-type]  # expected to be refused: b is an int
receipt("1")  # type: ignore[arg-type]  # expected to be refused: order_id is an int
tick(1)  # type: ignore[call-arg]  # expected to be refused: tick has no inputs
mail(ctx=None, to="")  # type: ignore[call-arg]  # expected to be refused: the engine passes the context


@work(priority="high")  # type: ignore[call-overload]  # expected to be refused: a priority is an int
def urgent() -> None: ...
