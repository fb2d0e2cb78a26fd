"""What a driver can do, and the process in which it does it."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class WorkerCommand:
    """How a worker process is started, and how many processes of it take jobs."""

    arguments: list[str]
    env: dict[str, str] = field(default_factory=dict)
    processes: int = 1


class Driver:
    """A contestant's queue. The methods are called from another process; numbers count jobs."""

    def prepare(self) -> None:
        """Make tables; called once, on an empty database."""

    def clear(self) -> None:
        """Empty the queue and its history."""

    def enqueue_one(self, number: int) -> None:
        """Queue one job, which is committed on return."""
        raise NotImplementedError

    def enqueue_each(self, count: int) -> None:
        """Queue jobs one by one."""
        for number in range(count):
            self.enqueue_one(number)

    def enqueue_many(self, count: int, way: str) -> None:
        """Queue jobs as the contestant queues many, in this way if it knows several."""
        raise NotImplementedError

    def enqueue_paced(self, count: int, gap: float) -> list[float]:
        """Queue jobs some seconds apart; return when each had been, by the monotonic clock."""
        moments = []
        due = time.monotonic() + gap
        for number in range(count):
            time.sleep(max(0.0, due - time.monotonic()))
            self.enqueue_one(number)
            moments.append(time.monotonic())
            due += gap
        return moments

    def fill(self, count: int) -> None:
        """Queue jobs as fast as can be; not timed."""
        self.enqueue_many(count, "")

    def fill_atomic(self, count: int) -> None:
        """Queue jobs that each write a row in the transaction that ends them; not timed."""
        raise NotImplementedError

    def pending(self) -> int:
        """Return how many jobs are not recorded as ended."""
        raise NotImplementedError

    def worker(self, setting: str) -> WorkerCommand:
        """Return how to start a worker process with this setting."""
        raise NotImplementedError


class AsyncDriver(Driver):
    """A driver whose queue is used from an event loop, which runs only within calls."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it to its end."""
        return self.runner.run(coroutine)

    async def aenqueue_one(self, number: int) -> None:
        """Queue one job, which is committed on return."""
        raise NotImplementedError

    def enqueue_one(self, number: int) -> None:
        """Queue one job."""
        self.run(self.aenqueue_one(number))

    def enqueue_each(self, count: int) -> None:
        """Queue jobs one by one, in one run of the loop."""
        self.run(repeat(self.aenqueue_one, count))


async def repeat(call: Callable[[int], Awaitable[None]], count: int) -> None:
    """Await so many calls one after the other."""
    for number in range(count):
        await call(number)


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module with this interpreter."""
    return [sys.executable, "-m", module, *arguments]


def chunks(count: int, size: int) -> list[range]:
    """Return the numbers of so many jobs in pieces."""
    return [range(start, min(count, start + size)) for start in range(0, count, size)]


def serve(driver: Driver, connection: Connection) -> None:
    """Answer (method, arguments) with (result, seconds) or a failure's text, until the other side is gone."""
    while True:
        try:
            method, arguments = connection.recv()
        except EOFError:
            return
        started = time.perf_counter()
        try:
            result = getattr(driver, method)(*arguments)
        except BaseException as error:
            traceback.print_exc()
            connection.send((f"{type(error).__name__}: {error}", None, 0.0))
        else:
            connection.send(("", result, time.perf_counter() - started))


def main() -> None:
    """Be the driver process: ``python -m bench.peers.driver DESCRIPTOR MODULE ARGUMENTS…``."""
    descriptor, module, *arguments = sys.argv[1:]
    connection = Connection(int(descriptor))
    os.dup2(sys.stderr.fileno(), 1)  # what libraries print is for the log
    made = importlib.import_module(f"bench.peers.drivers.{module}").make_driver(*arguments)
    serve(made, connection)


if __name__ == "__main__":
    main()
