"""Batches that tests can hold up, look into and let fail; worker processes run them too."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django_ayework import BatchItem, Retry, batch_work, work
from tests.processes import eventually

NEVER_IN_A_TEST = 60.0
AT_ONCE = Retry(attempts=3, base=0, jitter=0)


class Stage:
    """What batches of this process meet; a test gets a fresh one through the fixture ``stage``."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.runs: list[list[Any]] = []
        self.items: list[BatchItem[Any]] = []
        self.inside = self.most_inside = 0
        self.lock = threading.Lock()
        #: What the handler does instead of doubling.
        self.act: Callable[[list[BatchItem[Any]]], Any] | None = None

    @contextmanager
    def occupied(self, items: list[BatchItem[Any]]) -> Iterator[None]:
        """Note a run that is inside."""
        with self.lock:
            self.runs.append([item.input for item in items])
            self.items += items
            self.inside += 1
            self.most_inside = max(self.most_inside, self.inside)
        try:
            yield
        finally:
            with self.lock:
                self.inside -= 1

    def enter(self, items: list[BatchItem[Any]]) -> None:
        """Note a run."""
        with self.occupied(items):
            pass


stage = Stage()


def outputs(items: list[BatchItem[int]]) -> Any:
    """Note the run; double the inputs unless the test says otherwise."""
    stage.enter(items)
    return stage.act(items) if stage.act else [2 * item.input for item in items]


async def aoutputs(items: list[BatchItem[int]]) -> Any:
    return outputs(items)


three = batch_work(name="batches.three", size=3, max_wait=0.05, retry=AT_ONCE)(outputs)
three_async = batch_work(name="batches.three_async", size=3, max_wait=0.05, retry=AT_ONCE)(aoutputs)
hundred = batch_work(name="batches.hundred", size=100, max_wait=0.025, retry=AT_ONCE)(outputs)
#: Runs full batches only, while the test lasts.
patient = batch_work(name="batches.patient", size=3, max_wait=NEVER_IN_A_TEST, retry=AT_ONCE)(outputs)


@batch_work(name="batches.hold", size=2, max_wait=0, retry=AT_ONCE)
def hold(items: list[BatchItem[int]]) -> list[int]:
    """Hold its slot until the test says go."""
    now = stage
    with now.occupied(items):
        now.go.wait(NEVER_IN_A_TEST)
    return [2 * item.input for item in items]


@batch_work(name="batches.hold_async", size=2, max_wait=0, retry=AT_ONCE)
async def hold_async(items: list[BatchItem[int]]) -> list[int]:
    """See hold()."""
    now = stage
    with now.occupied(items):
        while not now.go.is_set():
            await asyncio.sleep(0.01)
    return [2 * item.input for item in items]


@work(name="batches.single")
def single(number: int) -> int:
    stage.enter([])
    return number


@work(name="batches.hold_single")
def hold_single() -> None:
    with stage.occupied([]):
        stage.go.wait(NEVER_IN_A_TEST)


@batch_work(name="batches.at", size=4, max_wait=0.2, retry=AT_ONCE)
def at(items: list[BatchItem[dict[str, Any]]]) -> list[str]:
    """Tell through a file that they run, and wait for one that lets them end."""
    folder = Path(items[0].input["place"])
    with (folder / "runs").open("a") as file:
        file.write(" ".join(str(item.input["number"]) for item in items) + "\n")
    eventually((folder / "go").exists, NEVER_IN_A_TEST)
    return [f"{item.input['number']} at attempt {item.attempt}" for item in items]


@batch_work(name="batches.patient_at", size=100, max_wait=NEVER_IN_A_TEST)
def patient_at(items: list[BatchItem[dict[str, Any]]]) -> list[int]:
    """Run when told to, for they are never a hundred."""
    return [item.input["number"] for item in items]
