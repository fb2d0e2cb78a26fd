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


@work(name="direct.flaky", skip_queue=True, retry=SOON)
def flaky(ctx: Context, error: str = "RuntimeError") -> int:
    """Fail once, perhaps with what is no Exception."""
    staged.stage.started.append(ctx.attempt)
    if ctx.attempt == 1:
        errors = (RuntimeError, KeyboardInterrupt, GeneratorExit, BaseException)
        raise {each.__name__: each for each in errors}[error]("attempt 1")
    return ctx.attempt


@work(name="direct.relay")
def relay(place: str) -> None:
    """Enqueue a work that this very process starts; its workers do not look for it."""
    enqueue(staged.at(place=place), skip_queue=True, queue="elsewhere")
