"""``ayework_doctor``: each check meets the condition that it is for, a real one where that can be made."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.checks import Error
from django.core.management import call_command
from django.db import OperationalError, connection

from django_ayework import enqueue
from django_ayework.documentation import entry_url, with_entry
from django_ayework.flow import diagnosis, startup_checks
from django_ayework.management.commands.ayework_doctor import lines_of
from django_ayework.models import Work
from django_ayework.rules.diagnosis import judged
from django_ayework.store.diagnosis import postgresql, sqlite
from django_ayework.store.dialects import Bounds
from django_ayework.store.sessions import own_connection
from django_ayework.testing import now
from django_ayework.testing.factories import ScheduleFactory, WorkerProcessFactory, WorkFactory
from tests.app.works import add

pytestmark = pytest.mark.django_db

FINDING = {"check", "level", "text", "remedy"}


@pytest.fixture
def polling(settings: Any) -> None:
    """No wake-ups: inside a test's transaction none are sent."""
    settings.AYEWORK = {"PUBSUB": "polling"}


@pytest.fixture
def vacuumed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Autovacuum counts as on: servers for tests may do without."""
    monkeypatch.setattr(postgresql, "vacuums", lambda: True)


class Report(dict[str, list[tuple[str, str]]]):
    """The findings by check: each a level, and the text with the remedy."""

    status = 0

    def of(self, check: str) -> tuple[str, str]:
        [finding] = self[check]
        return finding


def doctor() -> Report:
    out, report = StringIO(), Report()
    try:
        call_command("ayework_doctor", "--json", stdout=out)
    except SystemExit as end:
        report.status = int(end.code or 0)
    answer = json.loads(out.getvalue())
    assert set(answer) == {"database", "level", "findings"}
    assert (answer["level"] == "problem") == (report.status == 1)
    for finding in answer["findings"]:
        assert set(finding) == FINDING
        report.setdefault(finding["check"], []).append(
            (finding["level"], f"{finding['text']} {finding['remedy']}")
        )
    return report


def run(sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


def test_a_queue_that_is_well_has_no_problem_and_nothing_is_written(
    polling: None, vacuumed: None, statements: list[str]
) -> None:
    WorkerProcessFactory()
    enqueue(add(a=1, b=2))
    statements.clear()
    report = doctor()
    assert [found for each in report.values() for found in each if found[0] == "problem"] == []
    assert report.status == 0
    assert set(report) == {
        *("database", "system_checks"),
        *diagnosis.CHECKS,
        *diagnosis.CHECKS_OF_SERVER[connection.vendor],
    }
    assert {sql.split()[0] for sql in statements} <= {
        "SELECT",
        "WITH",
        "EXPLAIN",
        "PRAGMA",
        "SHOW",
        "SAVEPOINT",
        "RELEASE",
    }
    assert Work.objects.get().status == "pending"


def test_every_kind_of_database_has_the_same_checks() -> None:
    names = [set(checks) for checks in diagnosis.CHECKS_OF_SERVER.values()]
    assert all(each == names[0] for each in names)


def test_what_is_wrong_with_works_workers_and_schedules_is_said(settings: Any) -> None:
    settings.AYEWORK = {"PUBSUB": "polling", "VERSION": "v2"}
    WorkerProcessFactory(name="fast", version="v1", seen_at=now() + timedelta(minutes=1))
    WorkFactory(type="shop.ad")
    WorkFactory(status="running", queue="fax", worker="gone", leased_until=now() - timedelta(minutes=2))
    WorkFactory(status="success", ended_at=now() - timedelta(days=3))
    ScheduleFactory(name="nightly", due_at=now() - timedelta(minutes=5))
    report = doctor()
    expected = {
        "leases": ("problem", "Queues: fax."),
        "types": ("problem", "Did you mean 'shop.add'?"),
        "schedules": ("problem", "1 schedule of 1 not fired"),
        "retention": ("warning", "1 ended work should have been deleted"),
        "versions": ("warning", "Workers run the version v1; the version of this code is v2."),
        "clocks": ("problem", "Heartbeats from the future: fast."),
        "wake_ups": ("not_applicable", "workers poll"),
    }
    for check, (level, text) in expected.items():
        assert report.of(check)[0] == level, check
        assert text in report.of(check)[1]
    assert report.status == 1


def test_the_overview_says_what_waits_for_a_worker(polling: None) -> None:
    [(level, text)] = doctor()["works"]
    assert (level, text.split(",")[0]) == ("warning", "No worker is running")
    enqueue(add(a=1, b=2))
    assert doctor()["works"][0][0] == "problem"


@contextmanager
def open_transaction() -> Iterator[str]:
    """Another session with an open transaction; yields the id that the server has for it."""
    other = own_connection("default", Bounds(None, None))
    id_of_session = {"postgresql": "SELECT pg_backend_pid()", "mysql": "SELECT CONNECTION_ID()"}
    try:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            cursor.execute(id_of_session[other.vendor])
            [(id,)] = cursor.fetchall()
            cursor.execute("SELECT id FROM django_ayework_work")
            cursor.fetchall()
        yield str(id)
        other.rollback()
    finally:
        other.close()


@pytest.mark.vendors("postgresql", "mysql")
def test_the_oldest_open_transaction_is_named(
    transactional_db: None, polling: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis.judge_server, "VERY_LONG", -1.0)
    holder = {"postgresql": "process", "mysql": "thread"}[connection.vendor]
    with open_transaction() as id:
        until = time.monotonic() + 10
        # InnoDB shows what it knew up to 0.1 seconds ago. Others who use the server may have older ones.
        while f": {holder} {id}" not in (found := doctor().of("transactions"))[1]:
            assert time.monotonic() < until, found
    assert found[0] == "problem"
    assert ", user " in found[1]


def test_an_index_that_is_missing_is_named_and_claims_without_it_are_a_problem(
    transactional_db: None, polling: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis, "LARGE", 0)
    enqueue(add(a=1, b=2))
    [lane] = [index for index in Work._meta.indexes if index.name == "ayework_lane"]
    with connection.schema_editor() as editor:
        editor.remove_index(Work, lane)
    try:
        report = doctor()
    finally:
        with connection.schema_editor() as editor:
            editor.add_index(Work, lane)
    assert report.of("indexes")[0] == "problem"
    assert "ayework_lane." in report.of("indexes")[1]
    # Statements that name the index are refused by MariaDB and MySQL.
    expected = (
        ("warning", "ayework_lane") if connection.vendor == "mysql" else ("problem", "default: shop.add.")
    )
    assert report.of("claims")[0] == expected[0]
    assert expected[1] in report.of("claims")[1]
    healed = doctor()
    assert healed.of("indexes")[0] == healed.of("claims")[0] == "ok"


@pytest.mark.vendors("postgresql")
def test_tables_of_another_schema_are_not_judged(polling: None) -> None:
    before = doctor()
    run("CREATE SCHEMA other")
    run("CREATE TABLE other.django_ayework_group (id integer) WITH (autovacuum_enabled = false)")
    run("CREATE TABLE other.django_ayework_work (id integer) PARTITION BY LIST (id)")
    run("CREATE TABLE other.part PARTITION OF other.django_ayework_work FOR VALUES IN (1)")
    run("CREATE INDEX invalid_without_its_part ON ONLY other.django_ayework_work (id)")
    after = doctor()
    assert after.of("indexes") == before.of("indexes")
    assert after.of("dead_rows")[0] == before.of("dead_rows")[0]


class Deaf:
    """A PubSub that carries nothing."""

    def publish(self, channel: str, message: str) -> None: ...

    def subscribe(self, channel: str, listener: Any) -> Any:
        return lambda: None

    def close(self) -> None: ...


def test_wake_ups_make_a_round_trip(
    transactional_db: None, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    level, text = doctor().of("wake_ups")
    assert level == "ok"
    said = {"postgresql": "A message came back through PostgresPubSub"}
    assert text.startswith(said.get(connection.vendor, "The listener was connected through"))
    monkeypatch.setattr(diagnosis, "ROUND_TRIP", 0.05)
    settings.AYEWORK = {"PUBSUB": Deaf()}
    assert doctor().of("wake_ups")[0] == "problem"


#: By check: what is wrong, how that is mended, the level while it lasts, and a part of what is said.
WRONG = {
    "postgresql": [
        (
            "isolation",
            "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE",
            "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED",
            "problem",
            "isolates transactions as 'serializable'",
        ),
        (
            "dead_rows",
            "ALTER TABLE django_ayework_work SET (autovacuum_enabled = false)",
            "ALTER TABLE django_ayework_work RESET (autovacuum_enabled)",
            "problem",
            "Autovacuum is off.",
        ),
        (
            "holders",
            "SELECT pg_create_physical_replication_slot(left(current_database(), 60))",
            "SELECT pg_drop_replication_slot(left(current_database(), 60))",
            "warning",
            "not in use: ",
        ),
        (
            "session_limits",
            "SET idle_in_transaction_session_timeout = 0",
            "SET idle_in_transaction_session_timeout = '60s'",
            "warning",
            "idle in transaction: no bound",
        ),
    ],
    "mysql": [
        (
            "isolation",
            "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
            "problem",
            "isolates transactions as 'serializable'",
        ),
        (
            "server_settings",
            "SET SESSION sql_mode = ''",
            "SET SESSION sql_mode = 'STRICT_TRANS_TABLES'",
            "problem",
            "not strict",
        ),
    ],
    "sqlite": [
        (
            "server_settings",
            "PRAGMA busy_timeout = 10",
            "PRAGMA busy_timeout = 20000",
            "warning",
            "busy timeout 10 ms",
        )
    ],
}


@pytest.mark.parametrize(
    ("check", "broken", "mended", "level", "text"), WRONG[connection.vendor], ids=lambda part: part[:20]
)
def test_settings_of_the_server_and_of_its_sessions(
    transactional_db: None, polling: None, check: str, broken: str, mended: str, level: str, text: str
) -> None:
    run(broken)
    try:
        report = doctor()
    finally:
        run(mended)
    assert report.of(check)[0] == level
    assert text in report.of(check)[1]
    if check not in ("holders", "dead_rows"):  # others may use the server, and it may have no autovacuum
        assert text not in doctor().of(check)[1]


@pytest.mark.vendors("postgresql", "mysql")
def test_connections_are_compared_with_what_the_workers_need(
    polling: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    WorkerProcessFactory(concurrency=100_000)
    assert "need up to 100005" in doctor().of("connections")[1]
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", 0)
    assert doctor().of("connection_reuse")[0] == "warning"


@pytest.mark.vendors("sqlite")
def test_the_quick_check_of_sqlite_ends_in_time(
    transactional_db: None, polling: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis, "QUICK_CHECK", 0.0)
    monkeypatch.setattr(sqlite, "STEPS", 1)
    assert doctor().of("integrity")[0] == "warning"
    assert Work.objects.count() == 0  # the connection goes on


@pytest.mark.vendors("sqlite")
def test_the_file_system_of_a_path_is_that_of_the_longest_mount_above_it(tmp_path: Any) -> None:
    assert sqlite.file_system("/proc/version") == "proc"
    assert sqlite.file_system(None) == ""


def refuse() -> Any:
    raise OperationalError("access denied;\nyou need the PROCESS privilege")


def test_a_check_that_the_database_refuses_is_a_warning_and_the_others_go_on(
    polling: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(diagnosis.CHECKS, "claims", refuse)
    report = doctor()
    assert report.of("claims") == (
        "warning",
        "This could not be read: access denied; you need the PROCESS privilege Run the command as a user of "
        "the database that may read this, or look at it on the server.",
    )
    assert report.of("indexes")[0] == "ok"


def test_a_server_of_messages_that_does_not_answer_is_a_problem_and_the_others_go_on(
    polling: None, settings: Any
) -> None:
    settings.AYEWORK = {"PUBSUB": "redis", "REDIS_URL": "redis://127.0.0.1:1/0"}
    report = doctor()
    level, text = report.of("wake_ups")
    assert level == "problem"
    assert text.startswith("This could not be checked: ConnectionError: ")
    assert text.endswith("Mend what the error names: a server that does not answer, a package, or a setting.")
    assert report.of("indexes")[0] == "ok"


def test_a_database_that_is_away_or_not_migrated_is_the_only_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "name_of_server", refuse)
    report = doctor()
    assert (list(report), report.status) == (["database"], 1)
    monkeypatch.undo()
    monkeypatch.setattr(startup_checks, "missing_migrations", lambda: ["0011_next"])
    assert "manage.py migrate --database default" in doctor().of("database")[1]


def test_findings_are_printed_with_what_to_do(polling: None, vacuumed: None, call: Any) -> None:
    lines = call("ayework_doctor").splitlines()
    assert lines[0].startswith("ok       database          The database 'default' answers: ")
    place = lines.index("warning  works             No worker is running, but nothing waits for one.")
    assert lines[place + 1 : place + 3] == [
        f"{'':26} Start one: manage.py ayework_worker",
        f"{'':26} See {entry_url('doctor', 'works')}",
    ]


def test_a_finding_of_a_system_check_names_the_entry_of_that_check_alone() -> None:
    message = with_entry(Error("It is wrong.", hint="Mend it.", id="ayework.E001"))
    finding = judged("system_checks", message.msg, str(message.hint), fails=True)
    assert [line.strip() for line in lines_of(finding)[1:]] == [
        f"Mend it. See {entry_url('checks', 'ayework.E001')}"
    ]
