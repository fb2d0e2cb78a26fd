"""The rows of a scratch database: emptied, filled in bulk, and counted by the planner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Rows that one statement adds.
CHUNK = 10_000
#: How ids of added rows begin.
PREFIX = "kept-"
#: What comes before the number in an id, and the number of the first: ids are as long as those of real works.
HEAD, FIRST = f"{PREFIX}{'0' * 20}-", 1_000_000_000


def empty() -> None:
    """Delete every work."""
    from django.db import connection

    from django_ayework.models import Work

    with connection.cursor() as cursor:
        verb = "DELETE FROM" if connection.vendor == "sqlite" else "TRUNCATE TABLE"
        cursor.execute(f"{verb} {Work._meta.db_table}")


def empty_all() -> None:
    """Delete every row of the app and of the measurements; give back the room where a file would keep it."""
    from django.apps import apps
    from django.db import connection

    models = [
        model for label in ("django_ayework", "bench") for model in apps.get_app_config(label).get_models()
    ]
    tables = sorted({model._meta.db_table for model in models if model._meta.managed})
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(f"TRUNCATE {', '.join(tables)}")
            return
        if connection.vendor == "mysql":
            cursor.execute("SET foreign_key_checks = 0")
        for table in tables:
            cursor.execute(f"{'TRUNCATE TABLE' if connection.vendor == 'mysql' else 'DELETE FROM'} {table}")
        cursor.execute(
            "SET foreign_key_checks = 1"
            if connection.vendor == "mysql"
            else "PRAGMA wal_checkpoint(TRUNCATE)"
        )


def add_copies(count: int, start: int = 0, **columns: Any) -> None:
    """Add works that are copies of a waiting one but for these columns, by SQL alone.

    Their numbers begin at ``start``, so that some can be added after others.
    """
    from bench.works import hit
    from django_ayework import enqueue
    from django_ayework.models import Work

    example = enqueue(hit(number=0)).id
    make_numbers()
    for done in range(0, count, CHUNK):
        copy_work(example, FIRST + start + done, min(CHUNK, count - done), columns)
    Work.objects.filter(id=example).delete()


def make_numbers() -> None:
    """Make a table of this session with the numbers of a chunk."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS bench_number")
        cursor.execute("CREATE TEMPORARY TABLE bench_number (n integer)")
        for start in range(0, CHUNK, 500):
            numbers = ", ".join(f"({n})" for n in range(start, start + 500))
            cursor.execute(f"INSERT INTO bench_number (n) VALUES {numbers}")


def copy_work(example: str, first: int, count: int, columns: Mapping[str, Any]) -> None:
    """Insert so many copies of a work, with ids from this number on."""
    from django.db import connection

    from django_ayework.models import Work

    numbered = f"(bench_number.n + {first})"
    concat = f"'{HEAD}' || {numbered}" if connection.vendor == "sqlite" else f"CONCAT('{HEAD}', {numbered})"
    chosen, values = [], []
    for field in Work._meta.concrete_fields:
        if field.attname in columns:
            values.append(field.get_db_prep_save(columns[field.attname], connection))
        chosen.append(
            concat if field.primary_key else "%s" if field.attname in columns else f"example.{field.column}"
        )
    table, names = Work._meta.db_table, ", ".join(field.column for field in Work._meta.concrete_fields)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} ({names}) SELECT {', '.join(chosen)} FROM {table} example, bench_number "
            "WHERE example.id = %s AND bench_number.n < %s",
            [*values, example, count],
        )


def add_finished(count: int, start: int = 0, ago: float = 0.0) -> None:
    """Add works that have succeeded, so many seconds ago."""
    from datetime import timedelta

    from django_ayework.store.database import clock

    then = clock.now() - timedelta(seconds=ago)
    moments = dict.fromkeys(("queued_at", "run_at", "started_at", "ended_at"), then)
    add_copies(count, start, status="success", result="1", attempt=1, delivery=1, **moments)


def add_lived(count: int, start: int, ago: float) -> None:
    """Add works that have waited, have run, and have succeeded so many seconds ago.

    Unlike with add_finished() the database keeps what it keeps of each move, in its tables and indexes.
    """
    from datetime import timedelta

    from django_ayework.models import Work
    from django_ayework.store.database import clock

    then = clock.now() - timedelta(seconds=ago)
    add_copies(count, start, queued_at=then, run_at=then)
    lived = Work.objects.filter(id__gte=f"{HEAD}{FIRST + start}", id__lt=f"{HEAD}{FIRST + start + count}")
    running = {"status": "running", "attempt": 1, "delivery": 1, "worker": "bench"}
    lived.update(**running, started_at=then, leased_until=then)
    ended = {"status": "success", "worker": None, "leased_until": None, "completed_by": "bench"}
    lived.update(**ended, result="1", ended_at=then)


def add_future(count: int) -> None:
    """Add works that are due in ten days."""
    from datetime import timedelta

    from django_ayework.store.database import clock

    add_copies(count, status="scheduled", run_at=clock.now() + timedelta(days=10))


def forget_others() -> None:
    """Delete the works that were not added here."""
    from django_ayework.models import Work

    Work.objects.exclude(id__startswith=PREFIX)._raw_delete(Work.objects.db)


def refresh_statistics() -> None:
    """Let the planner know what is there."""
    from django.db import connection

    statements = {
        "postgresql": "VACUUM ANALYZE django_ayework_work",
        "mysql": "ANALYZE TABLE django_ayework_work",
    }
    with connection.cursor() as cursor:
        cursor.execute(statements.get(connection.vendor, "ANALYZE"))
        if connection.vendor == "mysql":
            cursor.fetchall()
