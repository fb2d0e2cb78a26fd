"""django_ayework, on any of its databases."""

from __future__ import annotations

import os
import time

from bench.peers.driver import Driver, WorkerCommand, chunks, module_command

os.environ["DJANGO_SETTINGS_MODULE"] = "bench.settings"
#: Seconds that a group may take.
GROUP_TIMEOUT = 240.0


class Ours(Driver):
    """Works of one type, queued and run with the settings that a new project has."""

    def prepare(self) -> None:
        """Migrate."""
        from django.core.management import call_command

        call_command("migrate", run_syncdb=True, verbosity=0)

    def clear(self) -> None:
        """Empty all tables of the app, and those of the jobs."""
        from bench.rows import empty_all

        empty_all()

    def enqueue_one(self, number: int) -> None:
        """Queue one in a transaction of its own."""
        from bench.works import hit
        from django_ayework import enqueue

        enqueue(hit(number=number))

    def enqueue_each(self, count: int) -> None:
        """Queue one by one."""
        from bench.works import hit
        from django_ayework import enqueue

        for number in range(count):
            enqueue(hit(number=number))

    def enqueue_many(self, count: int, way: str) -> None:
        """Queue all in one call."""
        from bench.works import hit
        from django_ayework import enqueue_many

        enqueue_many([hit(number=number) for number in range(count)])

    def fill(self, count: int) -> None:
        """Queue in pieces, which takes less memory."""
        from bench.works import hit
        from django_ayework import enqueue_many

        for numbers in chunks(count, 5000):
            enqueue_many([hit(number=number) for number in numbers])

    def fill_atomic(self, count: int) -> None:
        """Queue works that write a row in the transaction that ends them."""
        from bench.works import hit_and_write
        from django_ayework import enqueue_many

        for numbers in chunks(count, 5000):
            enqueue_many([hit_and_write(number=number) for number in numbers])

    def retain(self, kind: str, count: int) -> None:
        """Add works that are ``waiting``, ``finished`` or far in the ``future``; not timed."""
        from bench import rows

        {"waiting": rows.add_copies, "finished": rows.add_finished, "future": rows.add_future}[kind](count)

    def refill(self, count: int) -> None:
        """Queue jobs beside what is retained, and nothing else but that."""
        from bench.rows import forget_others, refresh_statistics

        forget_others()
        self.fill(count)
        refresh_statistics()

    def fan_out(self, children: int) -> tuple[float, float]:
        """Queue a work with no-op children, a gate and a report, and wait.

        Return the seconds to the report's end, as its row tells, and those until this process knew.
        """
        from bench.works import fan_out
        from django_ayework import enqueue
        from django_ayework.models import Work

        started = time.monotonic()
        handle = enqueue(fan_out(children=children))
        if (joined := handle.group(timeout=GROUP_TIMEOUT)) != children:
            raise RuntimeError(f"the report joined {joined} works instead of {children}")
        known = time.monotonic() - started
        root = Work.objects.get(id=handle.id)
        report = Work.objects.get(type="bench.report", group_id=root.group_id)
        assert report.ended_at
        return (report.ended_at - root.queued_at).total_seconds(), known

    def plain(self, count: int) -> float:
        """Queue no-op works, and wait; return the seconds to the end of the last, as its row tells.

        They are built within that time, as those of a group are.
        """
        from django.db.models import Max
        from django.utils import timezone

        from bench.works import noop
        from django_ayework import enqueue_many
        from django_ayework.models import Work

        started = timezone.now()
        enqueue_many([noop(number=number) for number in range(count)])
        until = time.monotonic() + GROUP_TIMEOUT
        live = Work.objects.filter(status__in=("pending", "running"))
        while live.exists() and time.monotonic() < until:
            time.sleep(0.05)
        last = Work.objects.filter(type="bench.noop").aggregate(Max("ended_at"))["ended_at__max"]
        return float((last - started).total_seconds())

    def pending(self) -> int:
        """Return how many have not ended."""
        from django_ayework.models import Work

        return Work.objects.filter(status__in=("pending", "running")).count()

    def worker(self, setting: str) -> WorkerCommand:
        """Start the worker as its users do; a setting has the options of the command."""
        command = module_command("django", "ayework_worker", *setting.split())
        return WorkerCommand(command, {"DJANGO_SETTINGS_MODULE": "bench.settings"})


def make_driver() -> Driver:
    """Set up Django on the scratch database."""
    import django

    django.setup()
    return Ours()
