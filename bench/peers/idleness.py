"""What processes use while nothing happens."""

from __future__ import annotations

import time
from collections.abc import Mapping

#: CPU is told for so many seconds, however long was watched.
CPU_SECONDS = 20
CPU, MEMORY, TRANSACTIONS = f"CPU s in {CPU_SECONDS} s", "RSS MiB", "transactions/s"


def watch(pid: int, url: str, seconds: float) -> Mapping[str, float]:
    """Watch a process and its children for some seconds.

    Transactions are those of the whole database, which only a PostgreSQL server counts by database.
    """
    import psutil

    root = psutil.Process(pid)
    processes = [root, *root.children(recursive=True)]

    def cpu() -> float:
        return sum(times.user + times.system for times in (process.cpu_times() for process in processes))

    started, used, done = time.monotonic(), cpu(), transactions(url)
    time.sleep(seconds)
    watched, used = time.monotonic() - started, cpu() - used
    figures = {
        CPU: used * CPU_SECONDS / watched,
        MEMORY: sum(process.memory_info().rss for process in processes) / 2**20,
    }
    if done is not None and (now_done := transactions(url)) is not None:
        figures[TRANSACTIONS] = (now_done - done) / watched
    return figures


def transactions(url: str) -> int | None:
    """Return how many transactions a PostgreSQL database has seen, asked from beside it; else None."""
    if not url.startswith("postgres"):
        return None
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    counted = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = %s"
    with psycopg.connect(url, dbname="postgres", autocommit=True) as connection:
        row = connection.execute(counted, [conninfo_to_dict(url)["dbname"]]).fetchone()
    return int(row[0]) if row else None
