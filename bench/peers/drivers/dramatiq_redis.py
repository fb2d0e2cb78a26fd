"""dramatiq on Redis, one process with its eight threads."""

from __future__ import annotations

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.peers import job
from bench.peers.driver import Driver, WorkerCommand, chunks, module_command

broker = RedisBroker(url=os.environ["BENCH_URL"])
dramatiq.set_broker(broker)


@dramatiq.actor(actor_name="hit")
def hit(number: int) -> None:
    """Be the job."""
    job.hit(number)


class Dramatiq(Driver):
    """Messages in a hash of Redis."""

    def clear(self) -> None:
        """Empty the Redis database, which is the measurement's own."""
        broker.client.flushdb()

    def enqueue_one(self, number: int) -> None:
        """Queue one."""
        hit.send(number)

    def enqueue_many(self, count: int, way: str) -> None:
        """Queue groups of a thousand, which are sent one by one."""
        for numbers in chunks(count, 1000):
            dramatiq.group(hit.message(number) for number in numbers).run()

    def fill(self, count: int) -> None:
        """Queue one by one."""
        self.enqueue_each(count)

    def pending(self) -> int:
        """Return how many messages are kept."""
        return int(broker.client.hlen("dramatiq:default.msgs"))

    def worker(self, setting: str) -> WorkerCommand:
        """Start its command; a setting is a number of threads."""
        options = ["-p", "1", "-t", setting]
        return WorkerCommand(module_command("dramatiq", "bench.peers.drivers.dramatiq_redis", *options))


def make_driver() -> Driver:
    """Use the broker of this module."""
    return Dramatiq()
