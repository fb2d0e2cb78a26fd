"""Commands on a database that is away, lacks migrations, or isolates transactions too much."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.checks.registry import register, registry
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import ProgrammingError, connection, connections

from django_ayework.management.commands import ayework_prune
from django_ayework.models import WorkerProcess
from django_ayework.worker.worker import Worker
from tests.databases import database_url

ROOT = Path(__file__).parents[2]
COMMANDS = ("status", "status --schedules", "retry --all", "prune", "explain some-id", "scheduler --once")
WORKERS = ("worker", "scheduler")
#: Runs commands one after the other, as a command line does, and says how each has ended. Its first argument
#: is what is wrong with the database; the tables that a router does not allow are left out by migrations.
RUNNER = """
import sys
from django.core.management import execute_from_command_line

if sys.argv[1] == "without tables":
    execute_from_command_line(["manage.py", "migrate", "--verbosity", "0"])
for command in sys.argv[2:]:
    status = 0
    try:
        execute_from_command_line(["manage.py", *f"ayework_{command}".split()])
    except SystemExit as end:
        status = end.code
    print("ended with", status)
"""


def python(env: dict[str, str], *arguments: str) -> tuple[int, str]:
    """Run Python until it ends; return its status and what it printed."""
    command = [sys.executable, "-u", *arguments]
    out: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    ended = subprocess.run(command, env=env, cwd=ROOT, timeout=100, check=False, **out)
    return ended.returncode, ended.stdout


def refused(env: dict[str, str], *commands: str, supervisor: bool = False) -> list[str]:
    """Require that each command ends in order, without a traceback; return what each has said.

    A supervisor starts its own command again for each worker.
    """
    status, printed = python(env, "-c", RUNNER, env["TEST_DATABASE"], *commands)
    *said, rest = printed.split("ended with 1\n")
    assert (status, len(said), rest) == (0, len(commands), ""), printed
    if supervisor:
        status, printed = python(env, "-m", "django", "ayework_worker", "--processes", "2")
        assert status == 1, printed
        said.append(printed)
    for each in said:
        assert "Traceback" not in each
        assert re.search("^CommandError: The database 'default'", each, re.MULTILINE), each
    return said


@pytest.fixture
def unusable(process_env):
    """The environment of processes for which the database is of no use."""

    def unusable(why: str, **more: str) -> dict[str, str]:
        module = "tests.commands.settings_unusable"
        return process_env | {"DJANGO_SETTINGS_MODULE": module, "TEST_DATABASE": why} | more

    return unusable


@pytest.fixture
def empty(unusable, tmp_path):
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


NOT_ALLOWED = "Correct its allow_migrate(), and apply them anew. Run: manage.py migrate django_ayework"


def test_a_database_that_is_away_is_reported_in_a_sentence(unusable):
    for said in refused(unusable("away"), *COMMANDS):
        assert "The database 'default' does not answer: " in said
        assert "Check that its server runs and has connections left, and DATABASES['default']." in said


EXHAUSTED = """
import django
django.setup()
from django.core.management import call_command
from django.db import connection
connection.settings_dict["OPTIONS"]["pool"] = {"min_size": 0, "max_size": 1, "timeout": 0.1}
connection.copy().ensure_connection()
call_command("COMMAND")
"""


@pytest.mark.vendors("postgresql")
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("command", ["ayework_doctor", "ayework_status"])
def test_a_pool_without_a_free_connection_is_named_as_a_cause(process_env, command):
    script = EXHAUSTED.replace("COMMAND", command)
    found = subprocess.run(
        [sys.executable, "-c", script], env=process_env, capture_output=True, text=True, timeout=60
    )
    said = " ".join((found.stdout + found.stderr).split())
    assert 'this process uses every connection of OPTIONS["pool"] (1), or the server is away' in said


def test_missing_migrations_are_reported_in_a_sentence(empty):
    for said in refused(empty, *COMMANDS, *WORKERS, supervisor=True):
        assert "Run: manage.py migrate --database default" in said


@pytest.mark.vendors("sqlite")
def test_tables_that_a_router_does_not_allow_are_reported_in_a_sentence(empty):
    for said in refused(empty | {"TEST_DATABASE": "without tables"}, *COMMANDS, *WORKERS):
        assert NOT_ALLOWED in said


@pytest.mark.vendors("postgresql", "mysql")
def test_a_worker_refuses_transactions_that_see_snapshots(unusable):
    level = "serializable" if connection.vendor == "postgresql" else "repeatable read"
    for said in refused(unusable("isolated"), *WORKERS):
        assert f"The database 'default' isolates transactions as {level!r}" in said
        assert "set it to READ COMMITTED" in said
        assert "default_transaction_isolation where it is set: for the role" in said
        assert "(ayework.E007)" in said
    if connection.vendor == "postgresql":  # whose driver gives an isolation to transactions alone
        [said] = refused(unusable("isolated by the driver"), "worker")
        assert "isolates transactions as 'repeatable read'" in said


@pytest.mark.vendors("sqlite")
def test_the_system_checks_of_a_command_ask_no_database(db):
    """Or a worker could not wait for its database to be there."""
    asked = []

    @register
    def note(app_configs, databases, **kwargs):
        asked.append(databases)
        return []

    try:
        call_command("ayework_status", skip_checks=False)
    finally:
        registry.registered_checks.discard(note)
    assert asked == [[]]


@pytest.mark.vendors("sqlite")
@pytest.mark.django_db(transaction=True)
def test_a_worker_says_why_it_does_not_start(monkeypatch, caplog):
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


@pytest.mark.django_db(transaction=True)
def test_a_worker_without_checks_refuses_transactions_that_commit_nothing(monkeypatch):
    monkeypatch.setitem(connections.settings["default"], "AUTOCOMMIT", False)
    with pytest.raises(ImproperlyConfigured, match=r"AUTOCOMMIT of the database 'default' is off.*E015"):
        Worker(burst=True).run()
    assert not WorkerProcess.objects.exists()


@pytest.mark.vendors("sqlite")
def test_a_refusal_to_tell_the_migrations_is_not_taken_for_no_answer(transactional_db, monkeypatch):
    def refuse(*arguments: object) -> object:
        raise ProgrammingError("permission denied for table django_migrations")

    monkeypatch.setattr(ayework_prune, "prune", refuse)
    monkeypatch.setattr("django_ayework.flow.startup_checks.missing_migrations", refuse)
    text = "^The database 'default' has refused a statement: permission denied for table django_migrations\\."
    with pytest.raises(CommandError, match=text):
        call_command("ayework_prune")


@pytest.mark.vendors("sqlite")
def test_a_statement_that_the_database_refuses_is_reported_in_a_sentence(transactional_db, monkeypatch):
    """Such as for a missing right: no transaction is open, and the database answers."""

    def refuse(limit: int) -> int:
        raise ProgrammingError("permission denied\nfor table works")

    monkeypatch.setattr(ayework_prune, "prune", refuse)
    text = "^The database 'default' has refused a statement: permission denied for table works\\."
    with pytest.raises(CommandError, match=text) as refused:
        call_command("ayework_prune")
    assert isinstance(refused.value.__cause__, ProgrammingError)
