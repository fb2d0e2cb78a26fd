"""Works that cost nothing, so that what is measured is the engine."""

from __future__ import annotations

import asyncio
import time

from bench.peers import job
from django_ayework import Context, Instruction, Retry, work


@work(name="bench.noop")
def noop(number: int) -> int:
    """Return the input."""
    return number


@work(name="bench.hit")
def hit(number: int) -> int:
    """Be the job that every contestant runs."""
    job.hit(number)
    return number


@work(name="bench.hit_and_write", atomic=True)
def hit_and_write(number: int) -> int:
    """Be that job, and write a row in the transaction that ends the work."""
    from bench.models import Written

    job.hit(number)
    Written.objects.create(number=number)
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


@work(name="bench.spin")
def spin(seconds: float) -> None:
    """Keep the interpreter busy for so many seconds of this thread's own time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(200))


@work(name="bench.fails", retry=Retry(attempts=1))
def fails(number: int) -> None:
    """Fail as a handler does that a service has refused."""
    raise ConnectionError(f"gateway refused order {number}")


@work(name="bench.urgent", queue="urgent")
def urgent() -> None:
    """Be looked for in another queue."""


@work(name="bench.limited", max_running=3)
def limited() -> int:
    """Return how many works of this type run at the moment."""
    from django_ayework.models import Work

    return Work.objects.filter(type="bench.limited", status="running").count()
