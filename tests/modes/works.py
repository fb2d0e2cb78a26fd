"""Works in each mode that write a row in each phase, and break where a test wants them to."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from pathlib import Path

from django.db import connection

from django_ayework import Context, Retry, work
from tests.app.models import Order
from tests.app.works import add
from tests.processes import eventually

TWICE = Retry(attempts=2, base=0, jitter=0)
NEVER_IN_A_TEST = 60.0


class Stage:
    """Where works wait for their test."""

    def __init__(self) -> None:
        self.go, self.arrived = threading.Event(), threading.Event()
        self.seen: list[object] = []
        self.entered = 0  # bodies of complete

    def arrive(self) -> None:
        """Wait for the first attempt, in the test."""
        assert self.arrived.wait(20)

    def hold(self, ctx: Context) -> None:
        """Wait for the test, in the first attempt."""
        if ctx.attempt == 1:
            self.arrived.set()
            self.go.wait(NEVER_IN_A_TEST)


stage = Stage()


def note(ctx: Context, phase: str) -> None:
    """Write a row that tells phase and attempt."""
    Order.objects.create(reference=f"{phase} {ctx.attempt}")


def notes() -> list[str]:
    return list(Order.objects.order_by("pk").values_list("reference", flat=True))


def break_here(ctx: Context, phase: str, broken: str, how: str) -> None:
    """Break the first attempt in this phase."""
    if ctx.attempt > 1 or phase != broken:
        return
    if how == "raises":
        raise RuntimeError(f"broken in {phase}")
    with connection.cursor() as cursor:
        cursor.execute("SELECT no_such_column FROM no_such_table")


def three_works(ctx: Context):
    return ctx.queue([add(a=1, b=2)]).next([add(a=3, b=4)])


def completes(body):
    """Return a handler whose complete does this."""

    def handler(ctx: Context):
        with ctx.complete():
            return body(ctx)

    return handler


def acompletes(body):
    """The same for an async handler."""

    async def handler(ctx: Context):
        return await ctx.acomplete(lambda: body(ctx))

    return handler


@work(name="modes.plain", retry=TWICE)
def plain(ctx: Context, broken: str, how: str = "raises"):
    note(ctx, "before")
    break_here(ctx, "after", broken, how)
    return three_works(ctx)


@work(name="modes.atomic", retry=TWICE, atomic=True)
def atomic(ctx: Context, broken: str, how: str = "raises"):
    break_here(ctx, "before", broken, how)
    note(ctx, "handler")
    break_here(ctx, "after", broken, how)
    return three_works(ctx)


@work(name="modes.staged", retry=TWICE)
def staged(ctx: Context, broken: str, how: str = "raises"):
    with ctx.prepare():
        note(ctx, "prepare")
        break_here(ctx, "prepare", broken, how)
    break_here(ctx, "between", broken, how)
    with ctx.complete():
        note(ctx, "complete")
        break_here(ctx, "complete", broken, how)
        three_works(ctx)
        break_here(ctx, "built", broken, how)
    break_here(ctx, "after", broken, how)


@work(name="modes.staged_async", retry=TWICE)
async def staged_async(ctx: Context, broken: str, how: str = "raises"):
    def prepare() -> None:
        note(ctx, "prepare")
        break_here(ctx, "prepare", broken, how)

    def complete():
        note(ctx, "complete")
        break_here(ctx, "complete", broken, how)
        return three_works(ctx)

    await ctx.aprepare(prepare)
    if broken == "between" and ctx.attempt == 1:
        raise RuntimeError("broken in between")
    return await ctx.acomplete(complete)


@work(name="modes.held_atomic", retry=TWICE, atomic=True)
def held_atomic(ctx: Context):
    note(ctx, "handler")
    stage.hold(ctx)
    return ctx.queue([add(a=1, b=2), ctx.result("done")])


def held_body(ctx: Context):
    stage.entered += 1
    note(ctx, "complete")
    return ctx.result(f"attempt {ctx.attempt}")


def note_error(error: Exception) -> None:
    stage.seen.append((type(error).__name__, getattr(error, "reason", None)))


@work(name="modes.held_between", retry=TWICE)
def held_between(ctx: Context):
    with ctx.prepare():
        note(ctx, "prepare")
    stage.hold(ctx)
    try:
        with ctx.complete():
            return held_body(ctx)
    except Exception as error:
        note_error(error)
        raise


@work(name="modes.held_between_async", retry=TWICE)
async def held_between_async(ctx: Context):
    await ctx.aprepare(lambda: note(ctx, "prepare"))
    stage.arrived.set()
    while ctx.attempt == 1 and not stage.go.is_set():
        with suppress(asyncio.CancelledError):  # it goes on although its work was taken
            await asyncio.sleep(0.01)
    try:
        return await ctx.acomplete(lambda: held_body(ctx))
    except Exception as error:
        note_error(error)
        raise


@work(name="modes.killed_atomic", retry=TWICE, atomic=True)
def killed_atomic(ctx: Context, place: str):
    note(ctx, "handler")
    wait_for_files(ctx, Path(place))
    return ctx.queue([add(a=1, b=2)])


@work(name="modes.killed_staged", retry=TWICE)
def killed_staged(ctx: Context, place: str):
    with ctx.prepare():
        note(ctx, "prepare")
    with ctx.complete():
        note(ctx, "complete")
        wait_for_files(ctx, Path(place))
        ctx.queue([add(a=1, b=2)])


def wait_for_files(ctx: Context, folder: Path) -> None:
    """Tell through a file that it has written, and let the first attempt wait for the end of its process."""
    (folder / f"wrote-{ctx.attempt}").touch()
    if ctx.attempt == 1:
        eventually((folder / "never").exists, NEVER_IN_A_TEST)
