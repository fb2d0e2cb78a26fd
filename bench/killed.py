"""A worker with fifty running works is killed: when others have finished them, and how often each ran."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from bench.harness import process_env, scratch_database

WORKS = 50
LEASE = 3.0


def main() -> None:
    """Print the seconds from the kill to the last settlement, and the attempts that were counted."""
    with scratch_database() as vendor:
        seconds, statuses, attempts = measure(process_env(LEASE))
    print(f"{vendor}: a worker with {WORKS} running works is killed beside another; leases of {LEASE} s")
    print(f"  all ended after {seconds:.2f} s, {dict(statuses)}, works by attempts counted {dict(attempts)}")


def measure(env: dict[str, str]) -> tuple[float, Counter[Any], Counter[Any]]:
    from bench.works import slow
    from django_ayework import enqueue_many
    from django_ayework.models import Work
    from tests.processes import eventually, worker_process

    enqueue_many([slow(seconds=1.0) for _ in range(WORKS)])
    with worker_process(env, "--concurrency", str(WORKS)) as victim:
        eventually(lambda: Work.objects.filter(status="running", started_at__isnull=False).count() == WORKS)
        with worker_process(env, "--concurrency", str(WORKS)):
            victim.kill()
            killed = time.monotonic()
            eventually(lambda: not Work.objects.filter(status__in=("pending", "running")).exists())
            seconds = time.monotonic() - killed
    works = Work.objects.values_list("status", "attempt")
    return seconds, Counter(status for status, _ in works), Counter(attempt for _, attempt in works)


if __name__ == "__main__":
    main()
