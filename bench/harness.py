"""A scratch database, a worker, and what they do."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from bench.running import stop_in_order

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "bench.settings")

LONGEST_DRAIN = 120.0


@contextmanager
def scratch_database() -> Iterator[str]:
    """Make a database of its own, named like a test database; yield the vendor; drop it."""
    import django

    stop_in_order()
    django.setup()
    from django.db import connection

    old_name = connection.settings_dict["NAME"]
    connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
    try:
        yield connection.vendor
    finally:
        connection.creation.destroy_test_db(old_name, verbosity=0)


def fill(count: int) -> None:
    """Queue no-op works."""
    from bench.works import noop
    from django_ayework import enqueue_many

    for start in range(0, count, 5000):
        enqueue_many([noop(number=n) for n in range(start, min(count, start + 5000))])


def process_env(lease: float = 30.0) -> dict[str, str]:
    """Return the environment for a process that uses the scratch database, with leases of these seconds."""
    from django.db import connection

    from tests.databases import database_url

    url = database_url(connection.settings_dict)
    mine = {"DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "bench.settings", "BENCH_LEASE": str(lease)}
    return os.environ | mine


def drain() -> float:
    """Start a worker; return the seconds from its start until every due work has ended."""
    from django_ayework import Worker
    from django_ayework.models import Work

    started = time.monotonic()
    with Worker():
        # A question for each status, as each has an index: both together would read every ended work.
        while any(Work.objects.filter(status=status).exists() for status in ("pending", "running")):
            if time.monotonic() - started > LONGEST_DRAIN:
                raise SystemExit("the drain did not end in time")
            time.sleep(0.02)
        return time.monotonic() - started


class StatementCounter:
    """Counts statements, and transactions, of every connection opened while it is active."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> StatementCounter:
        from django.db import connection
        from django.db.backends.signals import connection_created

        self.counts = {}
        connection_created.connect(self._attach)
        self._attach(connection=connection)
        return self

    def __exit__(self, *error: object) -> None:
        from django.db import connection
        from django.db.backends.signals import connection_created

        connection_created.disconnect(self._attach)
        with suppress(ValueError):
            connection.execute_wrappers.remove(self._count)

    def _attach(self, connection: Any, **kwargs: Any) -> None:
        if self._count not in connection.execute_wrappers:
            connection.execute_wrappers.append(self._count)
            commit = connection._commit

            def counted() -> Any:
                self._add("BEGIN")
                self._add("COMMIT")
                return commit()

            connection._commit = counted

    def _count(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        self._add(sql.split(None, 1)[0].upper())
        return execute(sql, params, many, context)

    def _add(self, word: str) -> None:
        with self._lock:
            self.counts[word] = self.counts.get(word, 0) + 1

    @property
    def total(self) -> int:
        """All statements, BEGIN and COMMIT included."""
        return sum(self.counts.values())
