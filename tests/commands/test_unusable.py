"""Commands on a database that is away, lacks migrations, or isolates transactions too much."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection

from django_ayework.models import WorkerProcess
from django_ayework.worker.worker import Worker
from tests.databases import database_url

ROOT = Path(__file__).parents[2]
COMMANDS = [
    ("ayework_status",),
    ("ayework_status", "--schedules"),
    ("ayework_retry", "--all"),
    ("ayework_prune",),
    ("ayework_explain", "some-id"),
    ("ayework_scheduler", "--once"),
]
WORKERS = [("ayework_worker",), ("ayework_worker", "--processes", "2")]
SCHEDULER = ("ayework_scheduler",)


def named(commands: list[tuple[str, ...]]) -> Any:
    return pytest.mark.parametrize("command", commands, ids=" ".join)


def manage(env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own until it ends."""
    command = [sys.executable, "-m", "django", *arguments]
    return subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def refused(ended: subprocess.CompletedProcess[str]) -> str:
    """Require that a command has ended in order, without a traceback; return what it said."""
    said = ended.stdout + ended.stderr
    assert ended.returncode == 1, said
    assert "Traceback" not in said
    assert [line for line in said.splitlines() if line.startswith("CommandError: The database 'default'")]
    return said


@pytest.fixture
def unusable(process_env: dict[str, str]) -> Any:
    """The environment of processes for which the database is of no use."""

    def unusable(why: str, **more: str) -> dict[str, str]:
        settings = {"DJANGO_SETTINGS_MODULE": "tests.commands.settings_unusable", "TEST_DATABASE": why}
        return process_env | settings | more

    return unusable


@pytest.fixture
def empty(unusable: Any, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of processes whose database has no tables."""
    if connection.vendor == "sqlite":
        yield unusable("empty", DATABASE_URL=f"sqlite:///{tmp_path / 'queue.sqlite3'}")
        return
    name = f"{connection.settings_dict['NAME']}_empty"
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name}")
    try:
        yield unusable("empty", DATABASE_URL=database_url(connection.settings_dict | {"NAME": name}))
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE {name}")


@named(COMMANDS)
def test_a_database_that_is_away_is_reported_in_a_sentence(unusable: Any, command: tuple[str, ...]) -> None:
    said = refused(manage(unusable("away"), *command))
    assert "The database 'default' does not answer: " in said
    assert "Check that its server runs, and DATABASES['default'] in the settings." in said


@named([*COMMANDS, *WORKERS, SCHEDULER])
def test_missing_migrations_are_reported_in_a_sentence(
    empty: dict[str, str], command: tuple[str, ...]
) -> None:
    said = refused(manage(empty, *command))
    assert "Run: manage.py migrate --database default" in said


@pytest.mark.vendors("postgresql", "mysql")
@named([*WORKERS, SCHEDULER])
def test_a_worker_refuses_transactions_that_see_snapshots(unusable: Any, command: tuple[str, ...]) -> None:
    said = refused(manage(unusable("isolated"), *command))
    level = "serializable" if connection.vendor == "postgresql" else "repeatable read"
    assert f"The database 'default' isolates transactions as {level!r}" in said
    assert "set it to READ COMMITTED" in said
    assert "(ayework.E007)" in said


@pytest.mark.vendors("postgresql")
def test_a_worker_refuses_an_isolation_that_the_driver_gives_transactions_alone(unusable: Any) -> None:
    assert "isolates transactions as 'repeatable read'" in refused(
        manage(unusable("isolated by the driver"), "ayework_worker")
    )


@pytest.mark.django_db(transaction=True)
def test_a_worker_says_why_it_does_not_start(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    monkeypatch.setattr("django_ayework.flow.startup_checks.missing_migrations", lambda: ["0009_new"])
    with pytest.raises(ImproperlyConfigured, match=r"0009_new\. Run: manage.py migrate"):
        Worker(burst=True).run()
    assert not WorkerProcess.objects.exists()
    with Worker() as worker:  # one in the background logs it
        worker.wait()
    assert "does not start. The database 'default' is not ready" in caplog.text
    assert "Traceback" not in caplog.text
    with pytest.raises(CommandError, match="0009_new"):
        call_command("ayework_worker", "--burst")
