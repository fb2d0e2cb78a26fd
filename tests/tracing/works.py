"""Works whose attempts tell what surrounds them."""

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

from asgiref.sync import sync_to_async

from django_ayework import Abort, BatchItem, Context, Defer, Retry, batch_work, work

#: What a propagator has set, as the handler sees it.
current: ContextVar[str] = ContextVar("current", default="nothing")
#: By the name of the handler.
seen: list[tuple[str, str]] = []


def note(name: str) -> None:
    seen.append((name, current.get()))


@work(name="tracing.plain")
def plain(name: str = "plain") -> None:
    note(name)


@work(name="tracing.asynchronous")
async def asynchronous() -> None:
    note("async")
    await sync_to_async(note)("async, in a thread")


@work(name="tracing.atomic", atomic=True)
def atomic() -> None:
    note("atomic")


@work(name="tracing.staged")
def staged(ctx: Context) -> None:
    with ctx.prepare():
        note("staged, preparing")
    with ctx.complete():
        note("staged, completing")


@batch_work(name="tracing.batched", size=3)
def batched(items: Sequence[BatchItem[int]]) -> list[Any]:
    note("batch")
    return [ValueError("odd") if item.input % 2 else item.input for item in items]


@work(name="tracing.parent")
def parent(ctx: Context) -> Any:
    return ctx.queue([plain(name="child")])


@work(name="tracing.fan")
def fan(ctx: Context) -> Any:
    return ctx.queue([plain(name="one"), plain(name="two")]).next([last()])


@work(name="tracing.last")
def last() -> None:
    note("last")


@work(name="tracing.alast")
async def alast() -> None:
    note("last, async")


@work(name="tracing.step")
def step(ctx: Context) -> Any:
    return ctx.continue_with(plain(name="next step"))


@work(name="tracing.failing", retry=Retry(attempts=2, base=0, jitter=0), redact=["pin"])
def failing(pin: str = "", order: int = 0) -> None:
    raise ValueError("no luck")


@work(name="tracing.aborting")
def aborting() -> None:
    raise Abort("not wanted")


@work(name="tracing.deferring")
def deferring() -> None:
    raise Defer(delay=3600)


@work(name="tracing.source", then="tracing.unit")
def source(ctx: Context) -> None:
    ctx.output({"a": {}, "b": {}})


@work(name="tracing.unit")
def unit() -> None:
    note("unit")
