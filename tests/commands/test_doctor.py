"""``ayework_doctor``: each check meets the condition that it is for, a real one where that can be made."""

import json
import time
from collections import defaultdict
from datetime import timedelta
from unittest.mock import Mock

import pytest
from django.core.checks import Error
from django.db import OperationalError, ProgrammingError, connection

from django_ayework import enqueue
from django_ayework.documentation import entry_url, with_entry
from django_ayework.flow import diagnosis, startup_checks
from django_ayework.management.commands.ayework_doctor import lines_of
from django_ayework.models import Work
from django_ayework.ports.queue import LocalQueue
from django_ayework.rules.diagnosis import judged
from django_ayework.store.database import run
from django_ayework.store.diagnosis import postgresql, sqlite
from django_ayework.testing import now
from django_ayework.testing.factories import ScheduleFactory, WorkerProcessFactory, WorkFactory
from tests.app.works import add
from tests.commands.conftest import ended
from tests.races.holding import transaction_elsewhere

pytestmark = pytest.mark.django_db
READS = {"SELECT", "WITH", "EXPLAIN", "PRAGMA", "SHOW", "SAVEPOINT", "RELEASE"}


@pytest.fixture(autouse=True)
def polling(settings):
    """No wake-ups: inside a test's transaction none are sent."""
    settings.AYEWORK = {"PUBSUB": "polling"}


@pytest.fixture
def vacuumed(monkeypatch):
    """Autovacuum counts as on: servers for tests may do without."""
    monkeypatch.setattr(postgresql, "vacuums", lambda: True)


class Report(defaultdict[str, list[tuple[str, str]]]):
    """The findings by check: each a level, and the text with the remedy."""

    def of(self, check: str) -> tuple[str, str]:
        [finding] = self[check]
        return finding


def doctor(status: int | None = None) -> Report:
    """Return what the command finds, which tells its status from the worst of it."""
    answered, out, _ = ended("ayework_doctor", "--json")
    answer, report = json.loads(out), Report(list)
    assert set(answer) == {"database", "level", "findings"}
    assert (answer["level"] == "problem") == (answered == 1)
    assert status is None or answered == status
    for finding in answer["findings"]:
        assert set(finding) == {"check", "level", "text", "remedy"}
        report[finding["check"]] += [(finding["level"], f"{finding['text']} {finding['remedy']}")]
    return report


def test_a_queue_that_is_well_has_no_problem_and_nothing_is_written(vacuumed, statements):
    WorkerProcessFactory()
    enqueue(add(a=1, b=2))
    statements.clear()
    report = doctor(status=0)
    assert [found for each in report.values() for found in each if found[0] == "problem"] == []
    checks = {"database", "system_checks", *diagnosis.CHECKS}
    for server in diagnosis.CHECKS_OF_SERVER.values():  # which all have the same
        assert set(report) == checks | set(server)
    assert {sql.split()[0] for sql in statements if not sql.endswith("WHERE 1 = 0")} <= READS
    assert Work.objects.get().status == "pending"


def test_what_is_wrong_with_works_workers_and_schedules_is_said(settings):
    level, text = doctor().of("works")
    assert (level, text.split(",")[0]) == ("warning", "No worker is running")
    enqueue(add(a=1, b=2))
    assert doctor()["works"][0][0] == "problem", "what waits for a worker is"
    settings.AYEWORK = {"PUBSUB": "polling", "VERSION": "v2"}
    WorkerProcessFactory(name="fast", version="v1", seen_at=now() + timedelta(minutes=1))
    WorkFactory(type="shop.ad")
    WorkFactory(status="running", queue="fax", worker="gone", leased_until=now() - timedelta(minutes=2))
    WorkFactory(status="success", ended_at=now() - timedelta(days=3))
    ScheduleFactory(name="nightly", due_at=now() - timedelta(minutes=5))
    report = doctor(status=1)
    for check, level, text in (
        ("leases", "problem", "Queues: fax."),
        ("types", "problem", "Did you mean 'shop.add'?"),
        ("schedules", "problem", "1 schedule of 1 not fired"),
        ("retention", "warning", "1 ended work should have been deleted"),
        ("versions", "warning", "Workers run the version v1; the version of this code is v2."),
        ("clocks", "problem", "Heartbeats from the future: fast."),
        ("wake_ups", "not_applicable", "workers poll"),
    ):
        assert report.of(check)[0] == level, check
        assert text in report.of(check)[1]


@pytest.mark.vendors("postgresql", "mysql")
def test_the_oldest_open_transaction_is_named(transactional_db, monkeypatch):
    monkeypatch.setattr(diagnosis.judge_server, "VERY_LONG", -1.0)
    holder, id_of_session = {
        "postgresql": ("process", "SELECT pg_backend_pid()"),
        "mysql": ("thread", "SELECT CONNECTION_ID()"),
    }[connection.vendor]
    ids = []
    with transaction_elsewhere(lambda: ids.append(run(id_of_session)) or list(Work.objects.all())):
        until = time.monotonic() + 10
        # InnoDB shows what it knew up to 0.1 seconds ago. Others who use the server may have older ones.
        while f": {holder} {ids[0]}" not in (found := doctor().of("transactions"))[1]:
            assert time.monotonic() < until, found
    assert found[0] == "problem"
    assert ", user " in found[1]


@pytest.mark.vendors("mysql")
def test_the_age_of_a_transaction_does_not_depend_on_the_time_zone_of_the_session(
    transactional_db, monkeypatch
):
    monkeypatch.setattr(diagnosis.judge_server, "LONG", -1.0)
    run("SET SESSION time_zone = '+05:00'")
    try:
        with transaction_elsewhere(lambda: list(Work.objects.all())):
            until = time.monotonic() + 10
            while (found := doctor().of("transactions"))[0] == "ok":
                assert time.monotonic() < until, found
    finally:
        run("SET SESSION time_zone = SYSTEM")
    assert found[0] == "warning"


def test_an_index_that_is_missing_is_named_and_claims_without_it_are_a_problem(transactional_db, monkeypatch):
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
    level, text = "problem", "default: shop.add."
    if connection.vendor == "mysql":  # which refuses statements that name the index
        level, text = "warning", "ayework_lane"
    assert report.of("claims")[0] == level
    assert text in report.of("claims")[1]
    healed = doctor()
    assert healed.of("indexes")[0] == healed.of("claims")[0] == "ok"


@pytest.mark.vendors("postgresql")
def test_tables_of_another_schema_are_not_judged():
    before = doctor()
    run("CREATE SCHEMA other")
    run("CREATE TABLE other.django_ayework_group (id integer) WITH (autovacuum_enabled = false)")
    run("CREATE TABLE other.django_ayework_work (id integer) PARTITION BY LIST (id)")
    run("CREATE TABLE other.part PARTITION OF other.django_ayework_work FOR VALUES IN (1)")
    run("CREATE INDEX invalid_without_its_part ON ONLY other.django_ayework_work (id)")
    after = doctor()
    assert after.of("indexes") == before.of("indexes")
    assert after.of("dead_rows")[0] == before.of("dead_rows")[0]


def test_wake_ups_make_a_round_trip(transactional_db, settings, monkeypatch):
    settings.AYEWORK = {}
    level, text = doctor().of("wake_ups")
    assert level == "ok"
    said = {"postgresql": "A message came back through PostgresPubSub"}
    assert text.startswith(said.get(connection.vendor, "The listener was connected through"))
    monkeypatch.setattr(diagnosis, "ROUND_TRIP", 0.05)
    settings.AYEWORK = {"PUBSUB": Mock(spec=["publish", "subscribe", "close"])}  # which carries nothing
    assert doctor().of("wake_ups")[0] == "problem"


def test_ids_make_a_round_trip_through_the_queue_that_delivers_them(settings, monkeypatch):
    assert doctor().of("delivery")[0] == "not_applicable"
    queue = LocalQueue()
    settings.AYEWORK = {"PUBSUB": "polling", "QUEUES": {"bulk": {"DELIVERY": queue}}}
    level, text = doctor().of("delivery")
    assert (level, text[:37]) == ("ok", "An id came back through LocalQueue wi")
    monkeypatch.setattr(diagnosis, "ROUND_TRIP", 0.05)
    monkeypatch.setattr(queue, "pop", lambda names, most, wait: [])  # which gives nothing
    level, text = doctor().of("delivery")
    assert (level, text[:38]) == ("problem", "No id came back through LocalQueue. Wo")
    monkeypatch.setattr(queue, "push", Mock(side_effect=PermissionError("no permission to add")))
    level, text = doctor(status=1).of("delivery")
    assert level == "problem"
    assert "through LocalQueue: PermissionError: no permission to add. Workers poll" in text


def test_a_statement_that_the_database_refuses_is_not_taken_for_no_answer(monkeypatch):
    refuse = Mock(side_effect=ProgrammingError("permission denied for table django_migrations"))
    monkeypatch.setattr(startup_checks, "missing_migrations", refuse)
    level, text = doctor(status=1).of("database")
    refusal = "has refused a statement: permission denied for table django_migrations. Give the account"
    assert (level, refusal in text) == ("problem", True)


def test_a_lock_that_another_session_holds_is_no_lack_of_rights(monkeypatch):
    is_locked = Mock(side_effect=OperationalError("database is locked"))
    monkeypatch.setattr(startup_checks, "try_writes", is_locked)
    level, text = doctor().of("writes")
    assert (level, text[:43]) == ("warning", "This could not be read: database is locked ")


PG_LEVEL = "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL"
#: By check: the level while something is wrong, a part of what is said, what breaks it, and what mends it.
WRONG = {
    "postgresql": [
        ("writes", "problem", "cannot be written: cannot execute INSERT in a read-only transaction.",
         "SET default_transaction_read_only = on", "SET default_transaction_read_only = off"),
        ("isolation", "problem", "isolates transactions as 'serializable'",
         f"{PG_LEVEL} SERIALIZABLE", f"{PG_LEVEL} READ COMMITTED"),
        ("dead_rows", "problem", "Autovacuum is off.",
         "ALTER TABLE django_ayework_work SET (autovacuum_enabled = false)",
         "ALTER TABLE django_ayework_work RESET (autovacuum_enabled)"),
        ("holders", "warning", "not in use: ",
         "SELECT pg_create_physical_replication_slot(left(current_database(), 60))",
         "SELECT pg_drop_replication_slot(left(current_database(), 60))"),
        ("session_limits", "warning", "idle in transaction: no bound",
         "SET idle_in_transaction_session_timeout = 0", "SET idle_in_transaction_session_timeout = '60s'"),
    ],
    "mysql": [
        ("writes", "problem", "cannot be written: (1792, ",
         "SET SESSION TRANSACTION READ ONLY", "SET SESSION TRANSACTION READ WRITE"),
        ("isolation", "problem", "isolates transactions as 'serializable'",
         "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
         "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"),
        ("server_settings", "problem", "not strict",
         "SET SESSION sql_mode = ''", "SET SESSION sql_mode = 'STRICT_TRANS_TABLES'"),
        ("server_settings", "problem", "sql_safe_updates or sql_select_limit is set",
         "SET SESSION sql_safe_updates = 1", "SET SESSION sql_safe_updates = 0"),
    ],
    "sqlite": [
        ("writes", "problem", "cannot be written: attempt to write a readonly database.",
         "PRAGMA query_only = ON", "PRAGMA query_only = OFF"),
        ("server_settings", "warning", "busy timeout 10 ms",
         "PRAGMA busy_timeout = 10", "PRAGMA busy_timeout = 20000"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("check", "level", "text", "broken", "mended"), WRONG[connection.vendor], ids=lambda part: part[:20]
)
def test_settings_of_the_server_and_of_its_sessions(transactional_db, check, level, text, broken, mended):
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
def test_connections_are_compared_with_what_the_workers_need(monkeypatch):
    WorkerProcessFactory(concurrency=100_000)
    assert "need up to 100006" in doctor().of("connections")[1]
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", 0)
    assert doctor().of("connection_reuse")[0] == "warning"


@pytest.mark.vendors("postgresql")
def test_a_database_with_a_lower_limit_than_the_server_is_the_one_that_is_judged():
    WorkerProcessFactory(concurrency=8)
    name = connection.settings_dict["NAME"]
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER DATABASE {connection.ops.quote_name(name)} CONNECTION LIMIT 12")
    level, text = doctor().of("connections")
    assert (level, f"of 12 connections of the database {name} are in use" in text) == ("warning", True)
    assert f"Raise CONNECTION LIMIT of the database {name}, run fewer" in text


@pytest.mark.vendors("sqlite")
def test_the_quick_check_of_sqlite_ends_in_time(transactional_db, monkeypatch):
    monkeypatch.setattr(diagnosis, "QUICK_CHECK", 0.0)
    monkeypatch.setattr(sqlite, "STEPS", 1)
    assert doctor().of("integrity")[0] == "warning"
    assert Work.objects.count() == 0  # the connection goes on
    # The file system of a path is that of the longest mount above it.
    assert (sqlite.file_system("/proc/version"), sqlite.file_system(None)) == ("proc", "")


def refuse():
    raise OperationalError("access denied;\nyou need the PROCESS privilege")


@pytest.mark.vendors("sqlite")
def test_a_check_that_the_database_refuses_is_a_warning_and_the_others_go_on(monkeypatch):
    monkeypatch.setitem(diagnosis.CHECKS, "claims", refuse)
    report = doctor()
    assert report.of("claims") == (
        "warning",
        "This could not be read: access denied; you need the PROCESS privilege Run the command as a user of "
        "the database that may read this, or look at it on the server.",
    )
    assert report.of("indexes")[0] == "ok"


@pytest.mark.vendors("sqlite")
def test_a_server_of_messages_that_does_not_answer_is_a_problem_and_the_others_go_on(settings):
    settings.AYEWORK = {"PUBSUB": "redis", "REDIS_URL": "redis://127.0.0.1:1/0"}
    report = doctor()
    level, text = report.of("wake_ups")
    assert level == "problem"
    assert text.startswith("This could not be checked: ConnectionError: ")
    assert text.endswith("Mend what the error names: a server that does not answer, a package, or a setting.")
    assert report.of("indexes")[0] == "ok"


@pytest.mark.vendors("sqlite")
def test_a_database_that_is_away_or_not_migrated_is_the_only_finding(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(startup_checks, "name_of_server", refuse)
        assert list(doctor(status=1)) == ["database"]
    monkeypatch.setattr(startup_checks, "missing_migrations", lambda: ["0011_next"])
    assert "manage.py migrate --database default" in doctor().of("database")[1]


@pytest.mark.vendors("sqlite")
def test_the_question_of_a_driver_gets_no_full_stop(monkeypatch):
    def unreachable():
        raise OperationalError("connection refused\n\tIs the server running?")

    monkeypatch.setattr(startup_checks, "name_of_server", unreachable)
    text = doctor().of("database")[1]
    assert text.endswith(
        "connection refused Is the server running? "
        "Check that its server runs and has connections left, and DATABASES['default']."
    )


@pytest.mark.vendors("sqlite")
def test_findings_are_printed_with_what_to_do_and_the_entry_of_the_check_alone(vacuumed, call):
    lines = call("ayework_doctor").splitlines()
    assert lines[0].startswith("ok       database          The database 'default' answers: ")
    place = lines.index("warning  works             No worker is running, but nothing waits for one.")
    assert lines[place + 1 : place + 3] == [
        f"{'':26} Start one: manage.py ayework_worker",
        f"{'':26} See {entry_url('doctor', 'works')}",
    ]
    message = with_entry(Error("It is wrong.", hint="Mend it.", id="ayework.E001"))
    finding = judged("system_checks", message.msg, str(message.hint), fails=True)
    entry = f"Mend it. See {entry_url('checks', 'ayework.E001')}"
    assert [line.strip() for line in lines_of(finding)[1:]] == [entry]
