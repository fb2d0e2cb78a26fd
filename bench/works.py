"""Works that cost nothing, so that what is measured is the engine."""

from __future__ import annotations

import asyncio
import time

from django_ayework import Context, Instruction, work


@work(name="bench.noop")
def noop(number: int) -> int:
    """Return the input."""
    return number


@work(name="bench.fan_out")
def fan_out(ctx: Context, children: int) -> Instruction[None, int]:
    """Queue no-op children, and a report that follows them."""
    return ctx.queue([noop(number=number) for number in range(children)]).next([report()])


@work(name="bench.report")
def report(ctx: Context) -> Instruction[int, int]:
    """Return how many works were joined."""
    return ctx.result(len(ctx.dependents))


@work(name="bench.asleep")
async def asleep(seconds: float) -> None:
    """Sleep as a call to a service does."""
    await asyncio.sleep(seconds)


@work(name="bench.slow")
def slow(seconds: float) -> None:
    """Take a while in a thread."""
    time.sleep(seconds)


@work(name="bench.urgent", queue="urgent")
def urgent() -> None:
    """Be looked for in another queue."""


@work(name="bench.limited", max_running=3)
def limited() -> int:
    """Return how many works of this type run at the moment."""
    from django_ayework.models import Work

    return Work.objects.filter(type="bench.limited", status="running").count()
