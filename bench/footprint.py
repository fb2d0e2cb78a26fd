"""How many bytes of disk a work takes with its indexes: waiting, succeeded, and dead after one attempt."""

from __future__ import annotations

import logging

from bench.harness import drain, fill, scratch_database
from bench.report.files import scaled
from bench.sizes import sizes

WORKS = 20_000
#: What gives room back that moves of rows have left, for each table.
PACK = {"postgresql": "VACUUM FULL ANALYZE {table}", "mysql": "OPTIMIZE TABLE {table}", "sqlite": "VACUUM"}


def main() -> None:
    """Print the bytes of a work as the database has them after the load, and packed."""
    logging.disable()  # of the tracebacks one is enough
    count = scaled(WORKS, 1000)
    for title, load in LOADS.items():
        with scratch_database() as vendor:
            empty = used_bytes()
            load(count)
            used = used_bytes()
            pack()
            packed = used_bytes()
        print(
            f"{vendor}: {title}: {(used - empty) / count:.0f} bytes per work, "
            f"packed {(packed - empty) / count:.0f}, over {count} works",
            flush=True,
        )


def succeeded(count: int) -> None:
    """Queue no-op works, and run them."""
    fill(count)
    drain()


def dead(count: int) -> None:
    """Queue works that fail once, and run them."""
    from bench.works import fails
    from django_ayework import enqueue_many

    for start in range(0, count, 5000):
        enqueue_many([fails(number=number) for number in range(start, min(count, start + 5000))])
    drain()


LOADS = {"waiting": fill, "succeeded": succeeded, "dead": dead}


def used_bytes() -> float:
    """Return the bytes of all tables of the app and their indexes."""
    for statement in statements({"mysql": "ANALYZE TABLE {table}", "sqlite": "PRAGMA wal_checkpoint"}):
        run(statement)
    table, index, _ = sizes()
    return (table + index) * 2**20


def pack() -> None:
    """Let the database give unused room back."""
    for statement in statements(PACK):
        run(statement)


def statements(by_vendor: dict[str, str]) -> list[str]:
    """Return the statement of this database for each table of the app, each statement once."""
    from django.apps import apps
    from django.db import connection

    models = [model for model in apps.get_app_config("django_ayework").get_models() if model._meta.managed]
    found = by_vendor.get(connection.vendor, "")
    tables = sorted({model._meta.db_table for model in models if not model._meta.proxy})
    return list(dict.fromkeys(found.format(table=table) for table in tables if found))


def run(statement: str) -> None:
    """Execute a statement, and read what it returns."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(statement)
        if cursor.description:
            cursor.fetchall()


if __name__ == "__main__":
    main()
