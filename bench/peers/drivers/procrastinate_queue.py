"""procrastinate. A setting is the worker's concurrency."""

from __future__ import annotations

import asyncio
import os
import sys

import procrastinate
import psycopg

from bench.peers import job
from bench.peers.driver import AsyncDriver, Driver, WorkerCommand, chunks, module_command

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=os.environ["BENCH_URL"]))


@app.task(name="hit")
async def hit(number: int) -> int:
    """Be the job."""
    job.hit(number)
    return number


class Procrastinate(AsyncDriver):
    """The app in an event loop, and a connection beside it for what is not timed."""

    def __init__(self) -> None:
        super().__init__()
        self.run(self.open())
        self.connection = psycopg.connect(os.environ["BENCH_URL"], autocommit=True)

    async def open(self) -> None:
        """Open the app's connections."""
        await app.open_async()

    def prepare(self) -> None:
        """Make its tables."""
        self.run(app.schema_manager.apply_schema_async())

    def clear(self) -> None:
        """Empty them, but for the workers, which jobs name."""
        self.connection.execute("TRUNCATE procrastinate_jobs, procrastinate_events CASCADE")
        self.connection.execute("DELETE FROM procrastinate_workers")

    async def aenqueue_one(self, number: int) -> None:
        """Queue one."""
        await hit.defer_async(number=number)

    def enqueue_many(self, count: int, way: str) -> None:
        """Queue batches of a thousand."""
        self.run(self.aenqueue_many(count))

    async def aenqueue_many(self, count: int) -> None:
        """Queue batches of a thousand."""
        for numbers in chunks(count, 1000):
            await hit.batch_defer_async(*({"number": number} for number in numbers))

    def pending(self) -> int:
        """Return how many have not ended."""
        waiting = "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"
        row = self.connection.execute(waiting).fetchone()
        return row[0] if row else 0

    def worker(self, setting: str) -> WorkerCommand:
        """Start a worker."""
        return WorkerCommand(module_command("bench.peers.drivers.procrastinate_queue", setting))


async def work(concurrency: int) -> None:
    """Run a worker of the app."""
    async with app.open_async():
        await app.run_worker_async(concurrency=concurrency)


def make_driver() -> Driver:
    """Open the app."""
    return Procrastinate()


if __name__ == "__main__":
    # The task is that of the module that the driver imports, not of the one that is run.
    from bench.peers.drivers import procrastinate_queue

    asyncio.run(procrastinate_queue.work(int(sys.argv[1])))
