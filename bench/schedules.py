"""What a tick costs beside ten thousand schedules of which none is due."""

from __future__ import annotations

import statistics
import time
from datetime import timedelta

from bench.harness import StatementCounter, scratch_database

SCHEDULES = 10_000
TICKS = 25


def main() -> None:
    """Print the seconds and the statements of a tick."""
    with scratch_database() as vendor:
        figures, statements = measure()
    print(f"{vendor}: a tick beside {SCHEDULES} schedules, none of them due, median of {TICKS}")
    print(f"  {statistics.median(figures) * 1000:.1f} ms, longest {max(figures) * 1000:.1f} ms")
    print(f"  {statements / TICKS:.2f} statements")


def measure() -> tuple[list[float], int]:
    from bench.works import noop
    from django_ayework import schedule
    from django_ayework.flow.scheduler import fire_due
    from django_ayework.flow.schedules import sync
    from django_ayework.models import Schedule
    from django_ayework.store.database import clock

    for number in range(SCHEDULES):
        schedule(
            name=f"bench-{number}", every=timedelta(hours=1), run=lambda number=number: noop(number=number)
        )
    sync()
    Schedule.objects.update(due_at=clock.now() + timedelta(hours=1))
    figures = []
    fire_due()
    with StatementCounter() as counter:
        for _ in range(TICKS):
            started = time.perf_counter()
            fire_due()
            figures.append(time.perf_counter() - started)
    return figures, counter.total


if __name__ == "__main__":
    main()
