"""A day of churn at a million rows in minutes: each hour works are queued, run, and pruned when a day old.

The clock of the engine is moved on with each hour; everything else is as it always is. Along the way: how
long a claim takes, how large tables and indexes are, how many rows are dead before PostgreSQL vacuums.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from io import StringIO

from bench.harness import scratch_database
from bench.report.files import keep, out_folder, scaled
from bench.report.plots import plot
from bench.report.readings import Reading
from bench.report.table import number
from bench.report.trends import slope
from bench.sizes import sizes, vacuum_as_the_server_would

ROWS = 1_000_000
HOURS = 24
HOUR = timedelta(hours=1)
#: Claims that are timed and rolled back in each hour, and works that each takes.
CLAIMS, CLAIM_SIZE = 21, 64
DATABASE_OF = {"postgresql": "postgres", "mysql": "mariadb", "sqlite": "sqlite"}


@dataclass(frozen=True)
class Hour:
    """What an hour has shown."""

    claim_ms: float  # median of the claims
    run_rate: float  # works run, per second
    prune_rate: float  # works pruned, per second
    rows: int
    table_mib: float
    index_mib: float
    dead_rows: float


#: What is plotted, by its name in an hour.
CURVES = {
    "claim_ms": "ms of a claim",
    "run_rate": "works run/s",
    "prune_rate": "works pruned/s",
    "table_mib": "MiB of the tables",
    "index_mib": "MiB of the indexes",
    "dead_rows": "dead rows",
}


def main() -> None:
    """Print how the day ends and how each curve grows; plot them."""
    with scratch_database() as vendor:
        database = DATABASE_OF[vendor]
        hours = measure()
    each = scaled(ROWS) // HOURS
    title = f"{database}: a day of churn at {hours[0].rows} rows, {each} works an hour"
    curves = curves_of(hours)
    readings = figures_of(database, curves)
    keep(f"churn-{database}", readings)
    print(title)
    for reading in readings:
        print(f"  {reading.figure:<24} {reading.setting:<26} {number(reading.median):>10}")
    print(f"  plotted: {plot(out_folder() / f'churn-{database}.png', title, 'hour', curves)}")


def measure() -> list[Hour]:
    """Fill the table as a day would have, then live another day."""
    from bench.rows import add_lived, refresh_statistics

    each = scaled(ROWS) // HOURS
    for hour in range(HOURS):
        add_lived(each, start=hour * each, ago=(HOURS - hour - 0.5) * HOUR.total_seconds())
        vacuum_as_the_server_would()
    refresh_statistics()
    return [live(each) for _ in range(HOURS)]


def live(works: int) -> Hour:
    """Live an hour: queue, claim a few to see how long that takes, run all, prune, look, and vacuum."""
    from bench.harness import fill
    from django_ayework.models import Work
    from django_ayework.store.database import clock

    clock.shift(HOUR / 2)
    fill(works)
    claim_ms = 1000 * statistics.median(claim_and_roll_back() for _ in range(CLAIMS))
    run_rate = works / seconds_of(run_all)
    clock.shift(HOUR / 2)
    before = Work.objects.count()
    pruning = seconds_of(prune_all)
    rows = Work.objects.count()
    hour = Hour(claim_ms, run_rate, (before - rows) / pruning, rows, *sizes())
    vacuum_as_the_server_would()
    return hour


def claim_and_roll_back() -> float:
    """Claim some works and give them back; return the seconds that the claim took."""
    from django.db import transaction

    from django_ayework.store import claims

    with transaction.atomic():
        lease = claims.new_lease("bench")
        started = time.perf_counter()
        claimed = claims.claim("default", {"bench.noop": CLAIM_SIZE}, CLAIM_SIZE, lease)
        seconds = time.perf_counter() - started
        transaction.set_rollback(True)
    if not claimed:
        raise SystemExit("a claim found nothing")
    return seconds


def run_all() -> None:
    """Run what is due."""
    from django_ayework import Worker

    Worker(burst=True).run()


def prune_all() -> None:
    """Prune what the retention no longer keeps."""
    from django.core.management import call_command

    call_command("ayework_prune", stdout=StringIO())


def seconds_of(action: Callable[[], None]) -> float:
    """Return how long something takes."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def curves_of(hours: list[Hour]) -> dict[str, list[float]]:
    """Return the values of each curve, of those that the database tells anything about."""
    curves = {title: [float(asdict(hour)[name]) for hour in hours] for name, title in CURVES.items()}
    return {title: values for title, values in curves.items() if any(values)}


def figures_of(database: str, curves: dict[str, list[float]]) -> list[Reading]:
    """Return the end of each curve, and by what share of its mean it grows in the second half of the day.

    In the first half a table finds its size: rows die before the database fills their places again.
    """
    about = ("churn", "ours", database)
    readings = []
    for figure, values in curves.items():
        growth = 100 * slope(values[len(values) // 2 :]).share
        readings.append(Reading(*about, "last three hours", figure, tuple(values[-3:])))
        readings.append(Reading(*about, "growth an hour, last half", f"% of {figure}", (growth,)))
    return readings


if __name__ == "__main__":
    main()
