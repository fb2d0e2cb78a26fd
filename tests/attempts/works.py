"""Handlers that may be interrupted, and what they note for their tests."""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from django.db import connections, transaction

from django_ayework import Aborted, AttemptTimeout, Context, Retry, work
from tests.app.models import Order

NEVER_IN_A_TEST = 60.0
ONCE = Retry(attempts=1)


class Stage:
    """What handlers of this process note; a test gets a fresh one through the fixture ``stage``."""

    def __init__(self) -> None:
        self.started, self.go = threading.Event(), threading.Event()
        self.seen: list[Any] = []
        self.lock = threading.Lock()


stage = Stage()


def be_busy(turn: Callable[[], object] = int) -> None:
    """Never look at ``ctx.signal``."""
    stage.started.set()
    until = time.monotonic() + NEVER_IN_A_TEST
    while time.monotonic() < until:
        turn()
    raise AssertionError("it was never interrupted")


@work(name="attempts.busy", interrupt=True, retry=ONCE)
def busy() -> None:
    """Note why it is interrupted."""
    try:
        be_busy()
    except (AttemptTimeout, Aborted) as error:
        stage.seen.append(getattr(error, "reason", "timeout"))
        raise


@work(name="attempts.waiting", retry=ONCE)
async def waiting(ctx: Context) -> str:
    """Note why it is cancelled."""
    stage.started.set()
    try:
        await asyncio.sleep(NEVER_IN_A_TEST)
    except asyncio.CancelledError:
        stage.seen.append(ctx.signal.reason)
        raise
    return "it was never cancelled"


@work(name="attempts.looking", retry=ONCE)
def looking(ctx: Context) -> str:
    """Note why the signal says stop, and return."""
    stage.started.set()
    ctx.signal.wait(NEVER_IN_A_TEST)
    stage.seen.append(ctx.signal.reason)
    return "too late"


def until_interrupted(**options: Any) -> Any:
    """Declare a handler that its test interrupts: its timeout is never reached."""
    return work(interrupt=True, retry=ONCE, timeout=60, **options)


@until_interrupted(name="attempts.locking")
def locking() -> None:
    """Wait for the lock of the stage, and be busy while it is taken."""
    stage.started.set()
    with stage.lock:
        be_busy()


class Thing:
    """What a handler has in its hands."""


@until_interrupted(name="attempts.holding")
def holding() -> None:
    thing = Thing()
    stage.seen.append(weakref.ref(thing))
    be_busy()


def half_a_transaction() -> None:
    with transaction.atomic():
        Order.objects.create(reference="half")
        Order.objects.filter(reference="half").exists()
        transaction.set_rollback(True)


@until_interrupted(name="attempts.querying")
def querying() -> None:
    """Be interrupted somewhere in the middle of a transaction."""
    stage.seen.append(connections["default"])
    with transaction.atomic():
        Order.objects.create(reference="undone")
        be_busy(half_a_transaction)


@work(name="attempts.after")
def after() -> str:
    """Use the database in the thread in which another handler was interrupted."""
    stage.seen.append(connections["default"])
    Order.objects.create(reference="after")
    return threading.current_thread().name


@until_interrupted(name="attempts.catches")
def catches() -> str:
    try:
        be_busy()  # not in a driver, which may put an error of its own in its place
    except AttemptTimeout:
        Order.objects.create(reference="caught")
    return "caught"


@until_interrupted(name="attempts.catches_atomic", atomic=True)
def catches_in_transaction() -> str:
    Order.objects.create(reference="undone")
    try:
        be_busy()
    except AttemptTimeout:
        return "caught"
    return "never"


@until_interrupted(name="attempts.staged")
def staged(ctx: Context) -> Any:
    with ctx.prepare():
        Order.objects.create(reference="prepared")
    with ctx.complete():
        Order.objects.create(reference="undone")
        be_busy(lambda: Order.objects.exists())
        return ctx.result("never")


@until_interrupted(name="attempts.stubborn")
def stubborn() -> str:
    """Catch whatever comes, time and again."""
    for _ in range(3):
        try:
            be_busy()
        except AttemptTimeout:
            stage.seen.append("again")
    return "gave in"


@work(name="attempts.random", interrupt=True, retry=ONCE, timeout=1e-6)
def for_a_while(turns: int) -> int:
    """End by itself, or be interrupted wherever it is by then."""
    for _ in range(turns):
        half_a_transaction()
    Order.objects.create(reference=f"ended {turns}")
    return turns
