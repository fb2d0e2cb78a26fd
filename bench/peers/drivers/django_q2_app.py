"""django-q2 with its broker in the database. A setting is how many it takes at a time, unless the default.

One worker is a ``qcluster``, which has as many processes for jobs as there are cores.
"""

from __future__ import annotations

import os
from typing import Any

from bench.peers.driver import Driver, WorkerCommand, chunks, module_command
from bench.peers.drivers.django_app import DjangoApp

JOB = "bench.peers.job.hit"


class Collector:
    """Stands where a broker does, and keeps what it is given."""

    list_key = "bench"

    def __init__(self) -> None:
        self.packages: list[str] = []

    def enqueue(self, package: str) -> None:
        """Keep it."""
        self.packages.append(package)


class DjangoQ2(DjangoApp):
    """A cluster on a table of packages."""

    app = "django_q"

    def enqueue_one(self, number: int) -> None:
        """Queue one."""
        from django_q.tasks import async_task

        async_task(JOB, number)

    def enqueue_many(self, count: int, way: str) -> None:
        """Queue one by one in one transaction, as it has nothing for many."""
        from django.db import transaction

        with transaction.atomic():
            self.enqueue_each(count)

    def fill(self, count: int) -> None:
        """Insert rows with the packages that it makes itself."""
        from django.utils import timezone
        from django_q.models import OrmQ
        from django_q.tasks import async_task

        for numbers in chunks(count, 2000):
            collector: Any = Collector()
            for number in numbers:
                async_task(JOB, number, broker=collector)
            now = timezone.now()
            OrmQ.objects.bulk_create(OrmQ(key="bench", payload=one, lock=now) for one in collector.packages)

    def pending(self) -> int:
        """Return how many it still has a row for, which it deletes when a job has ended."""
        from django_q.models import OrmQ

        found: int = OrmQ.objects.count()
        return found

    def worker(self, setting: str) -> WorkerCommand:
        """Start a cluster."""
        command = self.command("qcluster", BENCH_BULK=setting)
        return WorkerCommand(module_command("django", "qcluster"), command.env, os.cpu_count() or 1)


def make_driver() -> Driver:
    """Set up Django."""
    return DjangoQ2()
