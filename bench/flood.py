"""How long a work of one queue waits while another queue is flooded, in polls of the worker."""

from __future__ import annotations

import statistics

from bench.harness import fill, scratch_database
from bench.rows import refresh_statistics

FLOOD = 100_000
URGENT = 15


def main() -> None:
    """Print how long works of a small queue waited, each queued after the one before has ended."""
    from django_ayework.conf import get_settings

    with scratch_database() as vendor:
        waits, left = measure()
        poll = get_settings().poll_interval
    print(f"{vendor}: waits in a queue while another has {left} to {FLOOD} works due; a poll is {poll} s")
    print(f"  median {statistics.median(waits):.3f} s, longest of {URGENT} {max(waits):.3f} s")


def measure() -> tuple[list[float], int]:
    from bench.works import urgent
    from django_ayework import Worker
    from django_ayework.models import Work

    fill(FLOOD)
    refresh_statistics()
    waits: list[float] = []
    with Worker():
        for _ in range(URGENT):
            handle = urgent.enqueue()
            handle.result(timeout=60)
            work = Work.objects.get(id=handle.id)
            assert work.started_at is not None
            waits.append((work.started_at - work.queued_at).total_seconds())
        left = Work.objects.filter(queue="default", status="pending").count()
    return waits, left


if __name__ == "__main__":
    main()
