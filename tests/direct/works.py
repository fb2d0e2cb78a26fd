"""Works that skip the queue; worker processes run them too."""

from __future__ import annotations

import threading

from asgiref.sync import sync_to_async

from django_ayework import Context, Retry, enqueue, work
from django_ayework.models import Work
from tests.worker import works as staged

SOON = Retry(attempts=3, base=0.01, max=0.01, jitter=0)


@work(name="direct.quick", skip_queue=True)
def quick(number: int = 0) -> str:
    """Tell which thread runs it."""
    staged.stage.started.append(number)
    return threading.current_thread().name


@work(name="direct.quick_async", skip_queue=True)
async def quick_async(ctx: Context) -> list[str]:
    """Query, and tell which thread runs it."""
    found = await sync_to_async(Work.objects.get)(id=ctx.id)
    return [threading.current_thread().name, found.status]


@work(name="direct.chosen", options=lambda urgent: {"skip_queue": urgent})
def chosen(urgent: bool) -> str:
    """Skip the queue if its input says so."""
    return threading.current_thread().name


@work(name="direct.flaky", skip_queue=True, retry=SOON)
def flaky(ctx: Context, failures: int = 1) -> int:
    """Fail so many times."""
    staged.stage.started.append(ctx.attempt)
    if ctx.attempt <= failures:
        raise RuntimeError(f"attempt {ctx.attempt}")
    return ctx.attempt


@work(name="direct.first", skip_queue=True)
def first(ctx: Context):
    """Go on with a step."""
    return ctx.continue_with(second(name=threading.current_thread().name))


@work(name="direct.second")
def second(name: str) -> list[str]:
    """Tell who ran both."""
    return [name, threading.current_thread().name]


@work(name="direct.parent", skip_queue=True)
def parent(ctx: Context):
    """Queue two works, and one when both have succeeded; none of them skips the queue."""
    return ctx.queue([quick(number=1), quick(number=2)]).next(quick(number=3))


@work(name="direct.tally", skip_queue=True)
def tally(ctx: Context, number: int):
    """Add to the group's value."""
    return ctx.result(number, append=lambda total: (total or 0) + number)


@work(name="direct.atomic", skip_queue=True, atomic=True)
def atomic_one(ctx: Context) -> int:
    """Be one transaction with its outcome."""
    return ctx.attempt


@work(name="direct.relay")
def relay(place: str) -> None:
    """Enqueue a work that this very process starts; its workers do not look for it."""
    enqueue(staged.at(place=place), skip_queue=True, queue="elsewhere")


@work(name="direct.stops", skip_queue=True)
def stops(ctx: Context) -> None:
    """Run until it is told to stop, and then stop without an outcome."""
    staged.stage.started.append(ctx.attempt)
    ctx.signal.wait(staged.NEVER_IN_A_TEST)
    staged.stage.seen.append(ctx.signal.reason)
    ctx.signal.raise_if_aborted()


@work(name="direct.panics", skip_queue=True, retry=SOON)
def panics(ctx: Context, kind: str) -> int:
    """Raise what is no Exception, once."""
    if ctx.attempt == 1:
        raise {"keyboard": KeyboardInterrupt, "generator": GeneratorExit, "base": BaseException}[kind](kind)
    return ctx.attempt
