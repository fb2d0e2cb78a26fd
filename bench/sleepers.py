"""Ten thousand async works that sleep, a thousand at a time, in one process."""

from __future__ import annotations

import statistics
import time

from bench.harness import scratch_database
from bench.rows import empty

JOBS = 10_000
AT_A_TIME = 1_000
SECONDS = 0.05
ROUNDS = 3


def main() -> None:
    """Print the seconds from the start of the worker to the last settlement."""
    with scratch_database() as vendor:
        figures = [run() for _ in range(ROUNDS)]
    print(
        f"{vendor}: {JOBS} async works of {SECONDS * 1000:.0f} ms, {AT_A_TIME} at a time, medians of {ROUNDS}"
    )
    print(f"  {statistics.median(figures):8.2f} s   {', '.join(f'{figure:.2f}' for figure in figures)}")


def run() -> float:
    from bench.works import asleep
    from django_ayework import Worker, enqueue_many
    from django_ayework.models import Work

    empty()
    for _ in range(JOBS // 5000):
        enqueue_many([asleep(seconds=SECONDS) for _ in range(5000)])
    started = time.monotonic()
    with Worker(concurrency=AT_A_TIME):
        while Work.objects.filter(status__in=("pending", "running")).exists():
            time.sleep(0.02)
        return time.monotonic() - started


if __name__ == "__main__":
    main()
