"""The works under test. Each notes in the ledger that an attempt starts and how its handler ended."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from chaos.ledger import note
from django_ayework import BatchItem, Context, Instruction, Retry, batch_work, work

#: What ``eats`` holds; it is never given back.
_eaten: list[bytearray] = []


class Planned(Exception):
    """A failure that the load asked for."""


class Panic(BaseException):
    """What no handler should raise: ``except Exception`` does not see it."""


@contextmanager
def attempt(id: str, number: int) -> Iterator[None]:
    """Note the start and the end of a handler."""
    note("start", id=id, n=number)
    try:
        yield
    except BaseException as error:
        note("fail", id=id, n=number, error=type(error).__name__)
        raise
    note("ok", id=id, n=number)


def on_event(event: Any) -> None:
    """Record each end of a work (the hook ``ON_EVENT``)."""
    is_end = event.kind in ("succeeded", "expired", "cancelled")
    if is_end or (event.kind == "failed" and not event.extra["will_retry"]):
        note("settled", id=event.id, kind=str(event.kind))


def take_effect(ctx: Context, kind: str) -> None:
    """Write a row in the transaction that is open."""
    from chaos.models import Effect

    Effect(work=ctx.id, kind=kind).save()


@work(name="chaos.plain")
def plain(ctx: Context, seconds: float) -> None:
    """Take a while in a thread."""
    with attempt(ctx.id, ctx.attempt):
        time.sleep(seconds)


@work(name="chaos.asleep")
async def asleep(ctx: Context, seconds: float) -> None:
    """Take a while on the event loop."""
    with attempt(ctx.id, ctx.attempt):
        await asyncio.sleep(seconds)


@work(name="chaos.flaky")
def flaky(ctx: Context, failures: int) -> None:
    """Fail so many times, then succeed."""
    with attempt(ctx.id, ctx.attempt):
        if ctx.attempt <= failures:
            raise Planned(f"attempt {ctx.attempt} of {failures} that fail")


@work(name="chaos.doomed", retry=Retry(attempts=2))
def doomed(ctx: Context) -> None:
    """Fail until dead."""
    with attempt(ctx.id, ctx.attempt):
        raise Planned("it always fails")


@work(name="chaos.once", retry=Retry(attempts=1))
def once(ctx: Context, seconds: float) -> None:
    """Take a while, in the only attempt that there is."""
    with attempt(ctx.id, ctx.attempt):
        time.sleep(seconds)


@work(name="chaos.once_async", retry=Retry(attempts=1))
async def once_async(ctx: Context, seconds: float) -> None:
    """Take a while on the event loop, in the only attempt that there is."""
    with attempt(ctx.id, ctx.attempt):
        await asyncio.sleep(seconds)


@work(name="chaos.atomic", atomic=True)
def atomic(ctx: Context) -> None:
    """Write a row in the transaction that ends the work."""
    with attempt(ctx.id, ctx.attempt):
        take_effect(ctx, "once")


@work(name="chaos.staged")
def staged(ctx: Context, seconds: float) -> Instruction[int, int]:
    """Write a row before, and a row in the transaction that ends the work."""
    with attempt(ctx.id, ctx.attempt):
        with ctx.prepare():
            take_effect(ctx, "prepared")
        time.sleep(seconds)
        with ctx.complete():
            take_effect(ctx, "once")
            return ctx.result(1)


@work(name="chaos.leaf")
def leaf(ctx: Context, value: int) -> Instruction[int, int]:
    """Add a value to the group's; sometimes the second attempt does."""
    with attempt(ctx.id, ctx.attempt):
        if value % 7 == 0 and ctx.attempt == 1:
            raise Planned("the first attempt fails")
        return ctx.result(value, append=lambda total: (total or 0) + value)


@work(name="chaos.join", atomic=True)
def join(ctx: Context) -> None:
    """Be released by a gate, once."""
    with attempt(ctx.id, ctx.attempt):
        take_effect(ctx, "once")


@work(name="chaos.fan")
def fan(ctx: Context, values: list[int]) -> Instruction[None, Any]:
    """Queue a leaf for each value, and what follows when all have succeeded."""
    with attempt(ctx.id, ctx.attempt):
        return ctx.queue([leaf(value=value) for value in values]).next([join()])


@work(name="chaos.atomic_fan", atomic=True)
def atomic_fan(ctx: Context, values: list[int]) -> Instruction[None, Any]:
    """Do the same in the transaction that ends the work, with a row."""
    with attempt(ctx.id, ctx.attempt):
        take_effect(ctx, "once")
        return ctx.queue([leaf(value=value) for value in values]).next([join()])


@work(name="chaos.step")
def step(ctx: Context, left: int, total: int) -> Instruction[Any, Any]:
    """Hand over to the next step, or return how many there were."""
    with attempt(ctx.id, ctx.attempt):
        if left:
            return ctx.continue_with(step(left=left - 1, total=total + 1))
        return ctx.result(total + 1)


@work(name="chaos.blocked")
def blocked(ctx: Context) -> Instruction[int, int]:
    """Add up the results of the chains that were waited for."""
    with attempt(ctx.id, ctx.attempt):
        return ctx.result(sum(ctx.blockers))


@batch_work(name="chaos.batch", size=10, max_wait=0.05)
def batch(items: list[BatchItem[int]]) -> list[Any]:
    """Run many works in one call; the first attempt of every fifth fails alone."""
    return [output_of(item) for item in items]


def output_of(item: BatchItem[int]) -> int | Exception:
    """Return the output of an item, or the exception that stands for its failure."""
    try:
        with attempt(item.id, item.attempt):
            if item.input % 5 == 0 and item.attempt == 1:
                raise Planned("the first attempt fails")
            return item.input
    except Planned as error:
        return error


@work(name="chaos.keyed")
def keyed(ctx: Context) -> None:
    """Be there once per key."""
    with attempt(ctx.id, ctx.attempt):
        time.sleep(0.01)


@work(name="chaos.unit")
def unit(ctx: Context, number: int) -> None:
    """Be there once per unit."""
    with attempt(ctx.id, ctx.attempt):
        time.sleep(0.01)


@work(name="chaos.exits")
def exits(ctx: Context) -> None:
    """End the process with the first attempt."""
    with attempt(ctx.id, ctx.attempt):
        if ctx.attempt == 1:
            note("exit", id=ctx.id)
            os._exit(9)


@work(name="chaos.hangs", timeout=0.5, interrupt=True)
def hangs(ctx: Context) -> None:
    """Outlast the timeout in the first attempt, until interrupted."""
    with attempt(ctx.id, ctx.attempt):
        end = time.monotonic() + (20.0 if ctx.attempt == 1 else 0.0)
        while time.monotonic() < end:
            time.sleep(0.02)


@work(name="chaos.deaf", timeout=0.5)
def deaf(ctx: Context, seconds: float) -> None:
    """Outlast the timeout, and the lease, in one call that cannot be interrupted."""
    with attempt(ctx.id, ctx.attempt):
        time.sleep(seconds)


@work(name="chaos.panics")
def panics(ctx: Context, which: str) -> None:
    """Raise in the first attempt what is not an ``Exception``."""
    kinds: dict[str, type[BaseException]] = {
        "panic": Panic,
        "exit": SystemExit,
        "interrupt": KeyboardInterrupt,
        "generator": GeneratorExit,
    }
    with attempt(ctx.id, ctx.attempt):
        if ctx.attempt == 1:
            raise kinds[which]("as planned")


@work(name="chaos.eats")
def eats(ctx: Context, megabytes: int) -> None:
    """Take memory and keep it, up to a bound per process."""
    with attempt(ctx.id, ctx.attempt):
        if sum(map(len, _eaten)) < 200 * 2**20:
            _eaten.append(bytearray(b"x") * (megabytes * 2**20))
