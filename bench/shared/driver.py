"""Ours in the shared harness: ``driver.py serve pg`` or ``driver.py serve sqlite``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))  # after what the harness has put there
os.environ.update(DJANGO_SETTINGS_MODULE="bench.shared.settings", BENCH_SHARED=sys.argv[2])

import common  # noqa: E402


class Ours(common.Driver):  # type: ignore[misc]
    """Works of one type, with the settings that a new project has."""

    bulk_note = "enqueue_many"

    def setup(self) -> None:
        """Make the tables on an empty database."""
        if sys.argv[2] == "pg":
            common.reset_pg()
        else:
            for path in Path(common.STATE).glob("ayework.sqlite3*"):
                path.unlink()
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", run_syncdb=True, verbosity=0)

    def clear(self) -> None:
        """Empty all tables."""
        from bench.rows import empty_all

        empty_all()

    def enqueue_one(self, number: int) -> None:
        """Queue one in a transaction of its own."""
        from bench.shared.works import hit
        from django_ayework import enqueue

        enqueue(hit(number=number))

    def bulk(self, count: int) -> int:
        """Queue all in one call."""
        from bench.shared.works import hit
        from django_ayework import enqueue_many

        enqueue_many([hit(number=number) for number in range(count)])
        return count

    def backlog(self, count: int) -> None:
        """Queue in pieces, which takes less memory."""
        for start in range(0, count, 5000):
            self.bulk(min(5000, count - start))

    def pending(self) -> int:
        """Return how many have not ended."""
        from django_ayework.models import Work

        return Work.objects.filter(status__in=("pending", "running")).count()

    def worker(self, variant: str) -> dict[str, object]:
        """Start the worker as its users do."""
        names = ("DJANGO_SETTINGS_MODULE", "BENCH_SHARED")
        path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(ROOT)])
        return {
            "argv": [sys.executable, "-m", "django", "ayework_worker"],
            "env": {name: os.environ[name] for name in names} | {"PYTHONPATH": path},
            "expected": 1,
        }


if __name__ == "__main__":
    common.serve(Ours())
