"""``ayework_worker --check``: what it takes to run workers, and what is missing."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import OperationalError, connection

from django_ayework import enqueue
from django_ayework.documentation import entry_url
from django_ayework.flow import startup_checks
from django_ayework.store import sessions
from tests.app.works import add

pytestmark = pytest.mark.django_db


def check(*arguments: str) -> tuple[int, list[str]]:
    """Run the check; return its exit status and the lines it printed."""
    out = StringIO()
    try:
        call_command("ayework_worker", "--check", *arguments, stdout=out)
        status = 0
    except SystemExit as end:
        status = int(end.code or 0)
    return status, out.getvalue().splitlines()


@pytest.fixture
def wakeups() -> int:
    """How many connections wake-ups take."""
    return {"postgresql": 2, "mysql": 1}.get(connection.vendor, 0)


def said(lines: list[str], weight: str) -> list[str]:
    return [line.strip().removeprefix(weight).strip() for line in lines if line.startswith(f"  {weight}")]


def test_all_is_well(wakeups: int, django_assert_max_num_queries: Any) -> None:
    with django_assert_max_num_queries(12):  # nothing is started
        status, lines = check()
    assert status == 0
    assert lines[:2] == [
        f"Connections to the database 'default': at most {13 + wakeups}",
        "  1 process, each with 8 for handlers, 1 for claiming, 1 for settling, 1 for keeping leases, "
        "1 for maintenance, 1 for firing schedules"
        + ("", ", 1 for watching for new works", ", 1 for receiving wake-ups, 1 for sending many")[wakeups],
    ]
    names = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}
    server_name = names.get(connection.vendor, connection.display_name)
    assert said(lines, "ok") == [
        f"the database 'default' answers: {server_name}",
        "all migrations are applied",
    ]
    assert not said(lines, "problem")


@pytest.mark.parametrize(
    ("arguments", "keys", "most", "detail"),
    [
        ("--no-scheduler", {}, (12, 1), "  1 process, each with 8 for handlers"),
        ("--burst", {}, (12, 1), "  1 process, each with 8 for handlers"),
        ("", {"UNHANDLED_GROUP": print}, (14, 1), "1 for UNHANDLED_GROUP"),
        ("--processes 4 --concurrency 2", {}, (28, 4), "  4 processes, each with 2 for handlers"),
    ],
    ids=["no scheduler", "burst", "hook", "processes"],
)
def test_connections_are_counted(
    settings: Any, wakeups: int, arguments: str, keys: dict[str, Any], most: tuple[int, int], detail: str
) -> None:
    settings.AYEWORK = keys
    lines = check(*arguments.split())[1]
    assert lines[0] == f"Connections to the database 'default': at most {most[0] + most[1] * wakeups}"
    assert detail in lines[1]
    if "--processes" in arguments:
        lines = check(*arguments.split(), "--max-works", "9")[1]
        assert lines[2] == f"  at most {56 + 8 * wakeups} while all of them are being replaced"


def test_wakeups_that_are_heard_elsewhere_take_one_less(settings: Any) -> None:
    settings.AYEWORK = {"PUBSUB": "postgres", "PUBSUB_DATABASE": "default"}
    heard_elsewhere = check()[1][0]
    settings.AYEWORK = {"PUBSUB": "polling"}
    assert (heard_elsewhere, check()[1][0]) == (
        "Connections to the database 'default': at most 14",
        "Connections to the database 'default': at most 13",
    )


def test_unknown_queues_are_a_problem_or_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    status, lines = check("--queues", "mial,default")
    assert status == 1
    assert said(lines, "problem") == ["no type of work uses the queue 'mial'. Did you mean 'mail'?"]
    assert "the queue 'default' is known" in said(lines, "ok")
    status, lines = check("--queues", "zzz")
    assert status == 0
    assert said(lines, "note")[0] == "only works queued with queue='zzz' will come to that queue"
    enqueue(add(a=1, b=2), queue="zzz")
    assert "the queue 'zzz' is known" in said(check("--queues", "zzz")[1], "ok")
    lines = check("--types", "shop.add,shop.notify", "--queues", "mail")[1]
    note = "works of the type 'shop.add' go to the queue 'default', which is not served"
    assert said(lines, "note")[0] == note
    monkeypatch.setattr(startup_checks, "missing_migrations", lambda: ["0011_next"])
    assert all("migrations" in problem for problem in said(check("--queues", "mial")[1], "problem"))


def unreachable() -> str:
    raise OperationalError("connection refused\n\tIs the server running?")


@pytest.mark.parametrize(
    ("name", "answer", "keys", "problem"),
    [
        (
            "missing_migrations",
            lambda: ["0011_next"],
            {},
            "migrations are missing: 0011_next. Run: manage.py migrate --database default",
        ),
        (
            "name_of_server",
            unreachable,
            {},
            "the database 'default' does not answer: connection refused Is the server running?",
        ),
        (
            None,
            None,
            {"CONCURENCY": 5},
            "AYEWORK has the unknown key 'CONCURENCY'. Did you mean 'CONCURRENCY'? "
            f"See {entry_url('checks', 'ayework.E001')} (ayework.E001)",
        ),
    ],
    ids=["migrations", "no answer", "system checks"],
)
def test_problems(monkeypatch: pytest.MonkeyPatch, settings: Any, name, answer, keys, problem) -> None:
    settings.AYEWORK = keys
    if name:
        monkeypatch.setattr(startup_checks, name, answer)
    status, lines = check()
    assert status == 1
    assert said(lines, "problem") == [problem]


def test_missing_migrations_are_found_and_few_connections_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup_checks, "most_connections", lambda: 10)
    status, lines = check()
    assert status == 0
    assert said(lines, "note")[0] == (
        "the server takes 10 connections of everybody, fewer than these workers may use"
    )
    assert sessions.missing_migrations() == []
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'django_ayework'")
    assert sessions.missing_migrations()[0] == "0001_initial"


def test_a_pool_with_fewer_connections_than_slots_is_worth_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    for pool, size in [({"max_size": 5}, 5), (True, 4), ({"min_size": 6}, 6), ({"max_size": 8}, None)]:
        monkeypatch.setitem(connection.settings_dict["OPTIONS"], "pool", pool)
        budget = startup_checks.Budget(concurrency=8)
        found = [finding.text for finding in startup_checks.findings_on_connections(budget)]
        wanted = (
            f"the pool of a process has {size} connections, so its worker runs {size} works at a time "
            "instead of 8"
        )
        assert [text.partition(":")[0] for text in found] == ([wanted] if size else [])
        monkeypatch.undo()
