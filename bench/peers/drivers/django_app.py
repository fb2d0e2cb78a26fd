"""What drivers of Django apps have in common."""

from __future__ import annotations

import os
from typing import Any

from bench.peers.driver import Driver, WorkerCommand, module_command

SETTINGS = "bench.peers.django_settings"


class DjangoApp(Driver):
    """An app whose queue is a table. The driver keeps its connection, as workers may."""

    app = ""

    def __init__(self) -> None:
        os.environ.update(DJANGO_SETTINGS_MODULE=SETTINGS, BENCH_APP=self.app, BENCH_PERSISTENT="yes")
        import django

        django.setup()

    def prepare(self) -> None:
        """Migrate."""
        from django.core.management import call_command

        call_command("migrate", verbosity=0)

    def clear(self) -> None:
        """Empty all tables of the app, and the log of an SQLite file."""
        from django.apps import apps
        from django.db import connection

        models = [model for model in apps.get_models() if model.__module__.startswith(self.app)]
        tables = sorted({model._meta.db_table for model in models})
        with connection.cursor() as cursor:
            if connection.vendor == "postgresql":
                cursor.execute(f"TRUNCATE {', '.join(tables)} CASCADE")
                return
            for table in tables:
                cursor.execute(f"DELETE FROM {table}")
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def command(self, *arguments: str, kept: bool = True, **env: str) -> WorkerCommand:
        """Return a worker that is a management command."""
        mine = {
            "DJANGO_SETTINGS_MODULE": SETTINGS,
            "BENCH_APP": self.app,
            "BENCH_PERSISTENT": "yes" if kept else "",
        }
        return WorkerCommand(module_command("django", *arguments), mine | env)


class TasksApp(DjangoApp):
    """A backend of Django's tasks, which keeps them as rows of one model."""

    model: Any

    def enqueue_one(self, number: int) -> None:
        """Queue one."""
        from bench.peers.django_jobs import hit

        hit.enqueue(number)

    def pending(self) -> int:
        """Return how many have not ended."""
        found: int = self.model.objects.filter(status__in=("READY", "RUNNING")).count()
        return found
