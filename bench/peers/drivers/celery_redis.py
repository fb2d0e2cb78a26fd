"""celery on Redis, with two processes in its pool. A setting says whether it keeps results."""

from __future__ import annotations

import os

import celery
import redis

from bench.peers import job
from bench.peers.driver import Driver, WorkerCommand, chunks, module_command

URL = os.environ["BENCH_URL"]
POOL = 2

app = celery.Celery("bench", broker=URL, backend=URL if os.environ.get("BENCH_RESULTS") else None)


@app.task(name="hit")
def hit(number: int) -> int:
    """Be the job."""
    job.hit(number)
    return number


class Celery(Driver):
    """Messages in a list of Redis."""

    def __init__(self) -> None:
        self.redis = redis.Redis.from_url(URL)

    def clear(self) -> None:
        """Empty the Redis database, which is the measurement's own."""
        self.redis.flushdb()

    def enqueue_one(self, number: int) -> None:
        """Queue one."""
        hit.delay(number)

    def enqueue_many(self, count: int, way: str) -> None:
        """Queue groups of a thousand, which are sent one by one."""
        for numbers in chunks(count, 1000):
            celery.group(hit.s(number) for number in numbers).apply_async()

    def fill(self, count: int) -> None:
        """Queue one by one."""
        self.enqueue_each(count)

    def pending(self) -> int:
        """Return how many wait or are not acknowledged."""
        return int(self.redis.llen("celery")) + int(self.redis.hlen("unacked"))

    def worker(self, setting: str) -> WorkerCommand:
        """Start a worker with its pool."""
        options = ["worker", "-c", str(POOL), "-l", "ERROR", "-n", "bench-{n}@%h"]
        command = module_command("celery", "-A", "bench.peers.drivers.celery_redis", *options)
        return WorkerCommand(command, {"BENCH_RESULTS": setting, "C_FORCE_ROOT": "yes"}, POOL)


def make_driver() -> Driver:
    """Connect."""
    return Celery()
