"""pgqueuer on asyncpg and uvloop, as its own command runs it. A setting is its batch size."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

from bench.peers.driver import AsyncDriver, Driver, WorkerCommand, chunks, module_command
from bench.peers.job import hit


def encoded(number: int) -> bytes:
    """Return a job's payload."""
    return b'{"number": %d}' % number


class Pgqueuer(AsyncDriver):
    """One connection, in an event loop."""

    def __init__(self) -> None:
        super().__init__()
        self.connection = self.run(asyncpg.connect(os.environ["BENCH_URL"]))
        self.queries = Queries(AsyncpgDriver(self.connection))

    def prepare(self) -> None:
        """Make its tables."""
        self.run(self.queries.install())

    def clear(self) -> None:
        """Empty them."""
        self.run(self.connection.execute("TRUNCATE pgqueuer, pgqueuer_log, pgqueuer_statistics CASCADE"))

    async def aenqueue_one(self, number: int) -> None:
        """Queue one."""
        await self.queries.enqueue("hit", encoded(number), 0)

    def enqueue_many(self, count: int, way: str) -> None:
        """Queue lists of a thousand."""
        self.run(self.aenqueue_many(count))

    async def aenqueue_many(self, count: int) -> None:
        """Queue lists of a thousand."""
        for numbers in chunks(count, 1000):
            size = len(numbers)
            await self.queries.enqueue(["hit"] * size, [encoded(number) for number in numbers], [0] * size)

    def pending(self) -> int:
        """Return how many it still has a row for; those that ended are in its log."""
        found: int = self.run(self.connection.fetchval("SELECT count(*) FROM pgqueuer"))
        return found

    def worker(self, setting: str) -> WorkerCommand:
        """Start a process with one entrypoint."""
        return WorkerCommand(module_command("bench.peers.drivers.pgqueuer_queue", setting))


async def work(batch: int) -> None:
    """Run its manager."""
    queue = PgQueuer(AsyncpgDriver(await asyncpg.connect(os.environ["BENCH_URL"])))

    @queue.entrypoint("hit")
    async def run(job: Any) -> None:
        hit(json.loads(job.payload)["number"])

    await queue.run(batch_size=batch)


def make_driver() -> Driver:
    """Connect."""
    return Pgqueuer()


if __name__ == "__main__":
    uvloop.run(work(int(sys.argv[1])))
