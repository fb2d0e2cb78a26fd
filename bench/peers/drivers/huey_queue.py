"""huey on Redis or in an SQLite file. It deletes a job as it takes it, and keeps no record of it.

A setting is a number of workers and their kind, after them the seconds between two looks if not the default.
"""

from __future__ import annotations

import os

from huey import RedisHuey, SqliteHuey

from bench.peers import job
from bench.peers.driver import Driver, WorkerCommand, chunks, module_command

URL = os.environ["BENCH_URL"]
if URL.startswith("redis"):
    huey = RedisHuey("bench", url=URL)
else:
    huey = SqliteHuey("bench", filename=URL.removeprefix("sqlite:///"))


@huey.task()  # type: ignore[untyped-decorator]
def hit(number: int) -> None:
    """Be the job."""
    job.hit(number)


class Huey(Driver):
    """A list of Redis, or a table of a file."""

    def clear(self) -> None:
        """Empty what it keeps."""
        huey.storage.flush_all()

    def enqueue_one(self, number: int) -> None:
        """Queue one."""
        hit(number)

    def enqueue_many(self, count: int, way: str) -> None:
        """Queue by its map, which sends one by one."""
        for numbers in chunks(count, 1000):
            hit.map(numbers)

    def fill(self, count: int) -> None:
        """Queue one by one."""
        self.enqueue_each(count)

    def pending(self) -> int:
        """Return how many wait; it does not know which of the others have ended."""
        return int(huey.pending_count())

    def worker(self, setting: str) -> WorkerCommand:
        """Start its consumer."""
        count, kind, *delay = setting.split()
        options = ["-w", count, "-k", kind, "-q", *(["-d", *delay, "-m", *delay] if delay else [])]
        command = module_command("huey.bin.huey_consumer", "bench.peers.drivers.huey_queue.huey", *options)
        return WorkerCommand(command, processes=int(count) if kind == "process" else 1)


def make_driver() -> Driver:
    """Use the queue of this module."""
    return Huey()
