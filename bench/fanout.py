"""The time a fan-out takes, from its enqueue to the end of the report that joins it."""

from __future__ import annotations

import statistics
import time

from bench.harness import scratch_database

CHILDREN = 1000
ROUNDS = 5


def main() -> None:
    """Print the median."""
    with scratch_database() as vendor:
        from bench.works import fan_out
        from django_ayework import Worker, enqueue

        seconds = []
        with Worker():
            for _ in range(ROUNDS):
                started = time.monotonic()
                joined = enqueue(fan_out(children=CHILDREN)).group(timeout=60)
                seconds.append(time.monotonic() - started)
                if joined != CHILDREN:
                    raise SystemExit(f"the report joined {joined} works instead of {CHILDREN}")
    figures = ", ".join(f"{figure:.3f}" for figure in seconds)
    print(f"{vendor}: a fan-out of {CHILDREN} no-op children, its gate and its report, one idle worker")
    print(f"  {statistics.median(seconds):.3f} s from enqueue to the report's end   {figures}")


if __name__ == "__main__":
    main()
