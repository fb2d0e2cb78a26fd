"""``ayework_worker --check``: what it takes to run workers, and what is missing."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import OperationalError, connection

from django_ayework import enqueue
from django_ayework.flow import readiness
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


def test_all_is_well(wakeups: int) -> None:
    status, lines = check()
    assert status == 0
    assert lines[:2] == [
        f"Connections to the database 'default': at most {13 + wakeups}",
        "  1 process, each with 8 for handlers, 1 for claiming, 1 for settling, 1 for keeping leases, "
        "1 for maintenance, 1 for firing schedules"
        + ("", ", 1 for watching for new works", ", 1 for hearing wake-ups, 1 for sending many")[wakeups],
    ]
    names = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}
    server_name = names.get(connection.vendor, connection.display_name)
    assert said(lines, "ok") == [
        f"the database 'default' answers: {server_name}",
        "all migrations are applied",
    ]
    assert not said(lines, "problem")


def test_processes_multiply_what_one_takes(wakeups: int) -> None:
    lines = check("--processes", "4", "--concurrency", "2")[1]
    assert lines[0] == f"Connections to the database 'default': at most {28 + 4 * wakeups}"
    assert lines[1].startswith("  4 processes, each with 2 for handlers")


@pytest.mark.parametrize("option", ["--no-scheduler", "--burst"])
def test_a_worker_without_a_scheduler_takes_one_less(option: str, wakeups: int) -> None:
    assert check(option)[1][0] == f"Connections to the database 'default': at most {12 + wakeups}"


def test_wakeups_that_are_heard_elsewhere_take_one_less(settings: Any) -> None:
    settings.AYEWORK = {"PUBSUB": "postgres", "PUBSUB_DATABASE": "default"}
    heard_elsewhere = check()[1][0]
    settings.AYEWORK = {"PUBSUB": "polling"}
    assert (heard_elsewhere, check()[1][0]) == (
        "Connections to the database 'default': at most 14",
        "Connections to the database 'default': at most 13",
    )


def test_a_hook_for_unhandled_groups_takes_one_more(settings: Any, wakeups: int) -> None:
    settings.AYEWORK = {"UNHANDLED_GROUP": print}
    lines = check()[1]
    assert lines[0].endswith(f"at most {14 + wakeups}")
    assert "1 for UNHANDLED_GROUP" in lines[1]


def test_processes_that_are_replaced_are_there_twice_for_a_while(wakeups: int) -> None:
    lines = check("--processes", "4", "--concurrency", "2", "--max-works", "9")[1]
    assert lines[2] == f"  at most {56 + 8 * wakeups} while all of them are being replaced"


def test_a_queue_with_a_misspelt_name_is_a_problem() -> None:
    status, lines = check("--queues", "mial,default")
    assert status == 1
    assert said(lines, "problem") == ["no type of work uses the queue 'mial'. Did you mean 'mail'?"]
    assert "the queue 'default' is known" in said(lines, "ok")


def test_a_queue_that_no_type_uses_may_be_meant_for_some_works() -> None:
    status, lines = check("--queues", "zzz")
    assert status == 0
    assert said(lines, "note")[0] == "only works queued with queue='zzz' will come to that queue"
    enqueue(add(a=1, b=2), queue="zzz")
    assert "the queue 'zzz' is known" in said(check("--queues", "zzz")[1], "ok")


def test_a_type_whose_queue_is_not_served_is_worth_a_note() -> None:
    lines = check("--types", "shop.add,shop.notify", "--queues", "mail")[1]
    assert (
        said(lines, "note")[0]
        == "works of the type 'shop.add' go to the queue 'default', which is not served"
    )


def test_migrations_that_are_missing_are_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "missing_migrations", lambda: ["0011_next"])
    status, lines = check("--queues", "mial")
    assert status == 1
    assert said(lines, "problem") == [
        "migrations are missing: 0011_next. Run: manage.py migrate --database default"
    ]


def test_what_was_not_applied_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sessions.missing_migrations() == []
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'django_ayework'")
    assert sessions.missing_migrations()[0] == "0001_initial"


def test_a_database_that_is_away_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> str:
        raise OperationalError("connection refused\n\tIs the server running?")

    monkeypatch.setattr(readiness, "name_of_server", fail)
    status, lines = check()
    assert status == 1
    assert said(lines, "problem") == [
        "the database 'default' does not answer: connection refused Is the server running?"
    ]


def test_a_pool_with_fewer_connections_than_slots_is_worth_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    for pool, size in [({"max_size": 5}, 5), (True, 4), ({"min_size": 6}, 6), ({"max_size": 8}, None)]:
        monkeypatch.setitem(connection.settings_dict["OPTIONS"], "pool", pool)
        found = [
            finding.text for finding in readiness.findings_on_connections(readiness.Budget(concurrency=8))
        ]
        wanted = (
            f"the pool of a process has {size} connections, so its worker runs {size} works at a time "
            "instead of 8"
        )
        assert [text.partition(":")[0] for text in found] == ([wanted] if size else [])
        monkeypatch.undo()


def test_a_server_that_takes_too_few_connections_is_worth_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "most_connections", lambda: 10)
    status, lines = check()
    assert status == 0
    assert said(lines, "note")[0] == (
        "the server takes 10 connections of everybody, fewer than these workers may use"
    )


def test_system_checks_are_made_too(settings: Any) -> None:
    settings.AYEWORK = {"CONCURENCY": 5}
    status, lines = check()
    assert status == 1
    assert said(lines, "problem") == [
        "AYEWORK has the unknown key 'CONCURENCY'. Did you mean 'CONCURRENCY'? (ayework.E001)"
    ]


def test_nothing_is_started(django_assert_max_num_queries: Any) -> None:
    with django_assert_max_num_queries(12):
        check()
