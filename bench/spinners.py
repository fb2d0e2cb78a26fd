"""How long an urgent work takes beside works that compute, by how often threads take turns."""

from __future__ import annotations

import statistics
import sys
import time

from bench.harness import scratch_database
from bench.rows import empty

#: Works that compute are queued for longer than a round lasts.
JOBS, SECONDS = 500, 0.02
URGENT, APART = 10, 0.4
ROUNDS = 3


def main() -> None:
    """Print the milliseconds from an urgent work's enqueue to its end, by Python's interval and by ours."""
    from django_ayework.worker.process import DEFAULT_SWITCH_INTERVAL, SWITCH_INTERVAL

    figures: dict[float, list[float]] = {DEFAULT_SWITCH_INTERVAL: [], SWITCH_INTERVAL: []}
    with scratch_database() as vendor:
        for _ in range(ROUNDS):
            for interval, times in figures.items():
                sys.setswitchinterval(interval)
                times += run()
    print(f"{vendor}: an urgent work beside works that compute for {SECONDS * 1000:.0f} ms each")
    for interval, times in figures.items():
        p50, p90 = statistics.median(times), statistics.quantiles(times, n=10)[-1]
        print(f"  turns of {interval * 1000:.0f} ms: p50 {p50:4.0f} ms, p90 {p90:4.0f} ms")


def run() -> list[float]:
    from bench.works import spin, urgent
    from django_ayework import Worker, enqueue, enqueue_many
    from django_ayework.models import Work

    empty()
    enqueue_many([spin(seconds=SECONDS) for _ in range(JOBS)])
    with Worker():
        handles = []
        for _ in range(URGENT):
            time.sleep(APART)
            handles.append(enqueue(urgent(), priority=9))
        for handle in handles:
            handle.result(timeout=60)
    works = Work.objects.filter(type="bench.urgent")
    moments = list(works.values_list("queued_at", "ended_at"))
    assert len(moments) == URGENT
    return [(ended - queued).total_seconds() * 1000 for queued, ended in moments]


if __name__ == "__main__":
    main()
