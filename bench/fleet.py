"""What one enqueue costs beside 1, 4 and 12 idle worker processes, and how many connections each holds."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bench.harness import process_env, scratch_database
from bench.report.files import keep, scaled
from bench.report.readings import Reading
from bench.rows import empty

PROCESSES = (1, 4, 12)
ENQUEUES, APART = 60, 0.1
#: Seconds until the last process knows of all others, and until processes at rest have closed what they may.
ACQUAINTED = 25.0
#: A PostgreSQL server counts a session's transactions at the latest so many seconds after them.
COUNTED = 11.0
#: Seconds that processes may take to start, and a result to come.
LONGEST = 120.0
TRANSACTIONS, TIME, CONNECTIONS = (
    "transactions per enqueue",
    "ms to the result",
    "connections per idle process",
)


def main() -> None:
    """Print the figures; only a PostgreSQL server counts transactions and connections by database."""
    with scratch_database() as vendor:
        if vendor != "postgresql":
            print(f"{vendor}: a fleet is measured on PostgreSQL only")
            return
        print(f"{vendor}: {scaled(ENQUEUES)} enqueues beside idle worker processes, each awaited")
        readings: list[Reading] = []
        for count in PROCESSES:
            figures = measure(count)
            print(f"  {setting(count):12}   " + "   ".join(f"{n:5.1f} {name}" for name, n in figures.items()))
            readings += [
                Reading("fleet", "ours", "postgres", setting(count), name, (value,))
                for name, value in figures.items()
            ]
    keep("fleet", readings)


def setting(count: int) -> str:
    """Return what the table calls so many processes."""
    return "1 process" if count == 1 else f"{count} processes"


def measure(count: int) -> dict[str, float]:
    """Return the figures beside so many processes."""
    empty()
    with workers(count):
        enqueues = scaled(ENQUEUES, least=10)
        idle_rate = rate_at_rest()
        before, began = transactions(), time.monotonic()
        times = [timed() for _ in range(enqueues)]
        time.sleep(COUNTED)
        beside = idle_rate * (time.monotonic() - began)
        return {
            TRANSACTIONS: (transactions() - before - beside) / enqueues,
            TIME: statistics.median(times),
            CONNECTIONS: (connections() - 1) / count,
        }


@contextmanager
def workers(count: int) -> Iterator[None]:
    """Start worker processes; yield when they have run something and been idle for a while."""
    from bench.works import noop
    from django_ayework import enqueue_many
    from django_ayework.models import WorkerProcess
    from tests.processes import eventually, worker_process

    WorkerProcess.objects.all().delete()  # of those that were measured before
    with ExitStack() as processes:
        for _ in range(count):
            processes.enter_context(worker_process(process_env()))
        eventually(lambda: WorkerProcess.objects.count() == count, LONGEST)
        for handle in enqueue_many([noop(number=number) for number in range(20 * count)]):
            handle.result(timeout=LONGEST)
        time.sleep(ACQUAINTED)
        yield


def rate_at_rest() -> float:
    """Return the transactions per second of processes that have nothing to do."""
    before, began = transactions(), time.monotonic()
    time.sleep(COUNTED)
    return (transactions() - before) / (time.monotonic() - began)


def timed() -> float:
    """Return the milliseconds from an enqueue to its result in this process."""
    from bench.works import noop
    from django_ayework import enqueue

    time.sleep(APART)
    began = time.perf_counter()
    enqueue(noop(number=0)).result(timeout=LONGEST)
    return (time.perf_counter() - began) * 1000


def transactions() -> int:
    """Return how many transactions the database has seen."""
    return ask("SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()")


def connections() -> int:
    """Return how many sessions the database has, the asking one's included."""
    return ask("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")


def ask(statement: str) -> int:
    """Return the number that a statement returns."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(statement)
        return int(cursor.fetchone()[0])


if __name__ == "__main__":
    main()
