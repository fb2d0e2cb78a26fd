"""Works that tests of workers can hold up and look into; worker processes run them too."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from asgiref.sync import sync_to_async

from django_ayework import BatchItem, Context, Retry, batch_work, work
from django_ayework.doers import rate_limited, unlimited
from django_ayework.worker import health
from tests.processes import PATIENCE, eventually

NEVER_IN_A_TEST = 60.0


class Stage:
    """What works of this process meet; a test gets a fresh one through the fixture ``stage``."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.started: list[int] = []
        self.seen: list[Any] = []
        self.inside = self.most_inside = 0
        self.lock = threading.Lock()

    @contextmanager
    def occupied(self, number: int) -> Iterator[None]:
        """Note a work that is inside."""
        with self.lock:
            self.started.append(number)
            self.inside += 1
            self.most_inside = max(self.most_inside, self.inside)
        try:
            yield
        finally:
            with self.lock:
                self.inside -= 1


stage = Stage()

if os.environ.get("TEST_NO_CUT"):  # as if a driver did not return from a connection that was cut
    health.cut = lambda connection: True


@work(name="worker.moves")
def moves(place: str) -> str:
    """Change the directory of the process."""
    os.chdir(place)
    return os.getcwd()


@work(name="worker.ends_child")
def ends_child() -> int | None:
    """Fork a child, end it as ``Pool`` and ``terminate()`` do, and return its exit status."""
    child = get_context("fork").Process(target=threading.Event().wait)
    child.start()
    child.terminate()
    child.join(PATIENCE)
    status = child.exitcode
    child.kill()
    return status


@work(name="worker.quick")
def quick(number: int = 0) -> int:
    stage.started.append(number)
    return number


@work(name="worker.interpreter")
def interpreter() -> tuple[int, float]:
    """Tell how many objects are left out of garbage collection, and after how long threads take turns."""
    return gc.get_freeze_count(), sys.getswitchinterval()


@work(name="worker.cpus")
def cpus() -> list[int]:
    """Tell on which CPUs the handler may run."""
    return sorted(os.sched_getaffinity(0))


@work(name="worker.hold")
def hold(number: int = 0, poison: bool = False) -> int:
    """Hold its slot until the test says go; then end as it is told."""
    now = stage
    with now.occupied(number):
        now.go.wait(NEVER_IN_A_TEST)
    if poison:
        raise ArithmeticError("poison")
    return number


@work(name="worker.hold_async")
async def hold_async(number: int = 0) -> int:
    """Hold its slot on the event loop until the test says go."""
    now = stage
    with now.occupied(number):
        while not now.go.is_set():
            await asyncio.sleep(0.01)
    return threading.get_ident()


@work(name="worker.until_aborted")
def until_aborted(ctx: Context) -> str:
    """Note why it is told to stop; its second run ends at once."""
    stage.started.append(ctx.attempt)
    if ctx.attempt == 1:
        ctx.signal.wait(NEVER_IN_A_TEST)
        stage.seen.append(ctx.signal.reason)
    return f"attempt {ctx.attempt}"


def stay() -> None:
    stage.started.append(0)
    stage.go.wait(NEVER_IN_A_TEST)


long_lease = work(name="worker.long_lease", lease=600)(stay)
short_lease = work(name="worker.short_lease", lease=3)(stay)
hold_atomic = work(name="worker.hold_atomic", atomic=True)(stay)


@work(name="worker.exits", retry=Retry(attempts=1))
def exits() -> None:
    raise SystemExit(3)


def note_start(place: str, attempt: int, number: int = 0) -> None:
    """Say through a file that this attempt has started."""
    with Path(place, f"started-{number}").open("a") as file:
        file.write(f"{attempt}\n")


def started(place: Path, number: int = 0) -> str:
    """Read the attempts that have started, a line each."""
    path = place / f"started-{number}"
    return path.read_text() if path.exists() else ""


@work(name="worker.at", retry=Retry(attempts=2, base=0, jitter=0))
def at(ctx: Context, place: str, number: int = 0) -> str:
    """Tell through files that it runs, and wait for one that lets it end."""
    note_start(place, ctx.attempt, number)
    eventually(Path(place, "go").exists, NEVER_IN_A_TEST)
    return f"attempt {ctx.attempt}"


@work(name="worker.dies", retry=Retry(attempts=2, base=0, jitter=0))
def dies(ctx: Context, place: str) -> None:
    """Take its whole process along."""
    note_start(place, ctx.attempt)
    os._exit(9)


@work(name="worker.once", retry=Retry(attempts=1))
def once(ctx: Context, place: str, number: int = 0, kills: bool = False) -> str:
    """Tell through a file that it runs; take its whole process along if told to."""
    note_start(place, ctx.attempt, number)
    if kills:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"attempt {ctx.attempt}"


@work(name="worker.once_async_at", retry=Retry(attempts=1))
async def once_async_at(ctx: Context, place: str, number: int = 0, kills: bool = False) -> None:
    """See ``once``."""
    note_start(place, ctx.attempt, number)
    if kills:
        os.kill(os.getpid(), signal.SIGKILL)


@work(name="worker.once_held", retry=Retry(attempts=1))
def once_held(number: int = 0) -> None:
    now = stage
    now.started.append(number)
    now.go.wait(NEVER_IN_A_TEST)


@work(name="worker.once_here", retry=Retry(attempts=1))
def once_here(number: int = 0) -> int:
    stage.started.append(number)
    return number


@work(name="worker.once_async", retry=Retry(attempts=1))
async def once_async(number: int = 0) -> int:
    stage.started.append(number)
    return number


@work(name="worker.counted", doer=rate_limited(1000, 1, shared=True, key="worker.counted"))
def counted(number: int = 0) -> int:
    """Return the number; all processes count the starts together."""
    return number


@work(name="worker.once_in_doer", retry=Retry(attempts=1), doer=unlimited(64))
def once_in_doer(number: int = 0) -> int:
    return number


@work(name="worker.cancels_others")
async def cancels_others() -> None:
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


@batch_work(name="worker.once_together", size=2, max_wait=0.05, retry=Retry(attempts=1))
def once_together(items: list[BatchItem[int]]) -> list[int]:
    stage.started += [item.input for item in items]
    return [item.input for item in items]


@work(name="worker.at_async", retry=Retry(attempts=2))
async def at_async(ctx: Context, place: str, number: int = 0) -> str:
    """See ``at``."""
    note_start(place, ctx.attempt, number)
    while not Path(place, "go").exists():
        await asyncio.sleep(0.01)
    return f"attempt {ctx.attempt}"


@work(name="worker.until_aborted_at", retry=Retry(attempts=5, base=0, jitter=0))
def until_aborted_at(ctx: Context, place: str) -> str:
    """Tell through files that it runs, and why it was told to stop; its second run ends at once."""
    note_start(place, ctx.attempt)
    if ctx.attempt == 1 and ctx.signal.wait(NEVER_IN_A_TEST):
        Path(place, "reason").write_text(str(ctx.signal.reason))
    return f"attempt {ctx.attempt}"


@work(name="worker.at_in_thread")
async def at_in_thread(ctx: Context, place: str, number: int = 0) -> None:
    """Block a thread that only the end of the process ends."""
    note_start(place, ctx.attempt, number)
    await sync_to_async(time.sleep)(NEVER_IN_A_TEST)
