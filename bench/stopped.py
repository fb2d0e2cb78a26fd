"""A worker under load is told to stop, twenty times in a row: what becomes of the works it held."""

from __future__ import annotations

import signal
from collections import Counter
from typing import Any

from bench.harness import process_env, scratch_database

STOPS = 20
WORKS = 4_000


def main() -> None:
    """Print how the works ended after the last stop, and how many attempts each took."""
    with scratch_database() as vendor:
        exits, statuses, attempts = measure(process_env())
    print(f"{vendor}: a worker with {WORKS} works to do gets SIGTERM {STOPS} times, then all are finished")
    print(f"  exits {dict(exits)}, works {dict(statuses)}, works by attempts {dict(attempts)}")


def measure(env: dict[str, str]) -> tuple[Counter[int], Counter[Any], Counter[Any]]:
    from bench.works import slow
    from django_ayework import Worker, enqueue_many
    from django_ayework.models import Work
    from tests.processes import eventually, worker_process

    enqueue_many([slow(seconds=0.01) for _ in range(WORKS)])
    exits: Counter[int] = Counter()
    for _ in range(STOPS):
        before = Work.objects.filter(status="success").count()
        with worker_process(env, "--concurrency", "8") as process:
            eventually(lambda seen=before: Work.objects.filter(status="success").count() > seen)
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
            exits[process.returncode] += 1
    Worker(concurrency=64, burst=True).run()
    works = Work.objects.values_list("status", "attempt")
    return exits, Counter(status for status, _ in works), Counter(attempt for _, attempt in works)


if __name__ == "__main__":
    main()
