"""System checks of the queue's database."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from django.core.checks import Tags, run_checks
from django.core.checks.registry import registry as checks_registry

from django_ayework import checks
from django_ayework.flow import startup_checks


class Sqlite:
    vendor = "sqlite"

    def __init__(
        self, journal_mode="wal", version=(3, 33, 0), in_memory=False, busy=5000, name="db", **options
    ):
        self.is_in_memory_db = lambda: in_memory
        self.pragmas = {"journal_mode": journal_mode, "busy_timeout": busy}
        self.Database = SimpleNamespace(sqlite_version_info=version, sqlite_version="3.x")
        self.settings_dict = {"NAME": name, "OPTIONS": options}

    def cursor(self):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *error): ...

    def execute(self, statement):
        self.answer = self.pragmas[statement.removeprefix("PRAGMA ")]

    def fetchone(self):
        return (self.answer,)


def server(vendor, skip_locked=True, isolation="read committed", charset=None):
    features = SimpleNamespace(has_select_for_update_skip_locked=skip_locked)
    return SimpleNamespace(
        alias="queue", vendor=vendor, features=features, isolation=isolation, charset=charset
    )


class Connections(dict):
    @property
    def settings(self):
        return self


@pytest.fixture
def found(monkeypatch):
    """The ids of what the check says of this database."""

    def check(connection, databases=("default",)):
        monkeypatch.setattr(checks, "connections", Connections(default=connection))
        monkeypatch.setattr(startup_checks, "isolation_levels", lambda database: [database.isolation])
        monkeypatch.setattr(checks, "narrow_charset", lambda database: database.charset)
        messages = checks.check_database(None, databases=databases)
        return [message.id.removeprefix("ayework.") for message in messages]

    return check


@pytest.mark.django_db
def test_the_suites_own_database_is_fine():
    assert [m for m in run_checks(tags=[Tags.database], databases=["default"]) if "ayework" in m.id] == []
    assert checks.check_database in checks_registry.registered_checks
    assert checks.check_database.tags == (Tags.database,)


@pytest.mark.parametrize("vendor", ["postgresql", "mysql"])
@pytest.mark.parametrize(("features", "ids"), [
    ({}, set()), ({"skip_locked": False}, {"E006"}),
    *(({"isolation": isolation}, {"E007"}) for isolation in ("repeatable read", "serializable")),
    ({"skip_locked": False, "isolation": "serializable"}, {"E006", "E007"}),
    ({"charset": "latin1"}, {"W011"}),
])  # fmt: skip
def test_a_server_needs_skip_locked_and_read_committed(found, vendor, features, ids):
    assert set(found(server(vendor, **features))) == ids


@pytest.mark.parametrize("mode", [None, "", "DEFERRED", "deferred", "IMMEDIATE", "immediate", "EXCLUSIVE"])
@pytest.mark.parametrize("journal", ["wal", "memory", "delete", "truncate", "off"])
def test_sqlite_needs_a_write_lock_from_the_start_and_wal(found, mode, journal):
    options = {} if mode is None else {"transaction_mode": mode}
    ids = ["W001"] if (mode or "deferred").lower() == "deferred" else []
    ids += [] if journal == "wal" else ["W002"]
    assert found(Sqlite(journal, **options)) == ids


def test_sqlite_in_memory_has_no_write_ahead_log(found):
    assert found(Sqlite("memory", in_memory=True, transaction_mode="IMMEDIATE")) == []


@pytest.mark.parametrize(("busy", "ids"), [(0, ["W012"]), (4999, ["W012"]), (5000, []), (20000, [])])
def test_sqlite_waits_for_its_write_lock(found, busy, ids):
    assert found(Sqlite(busy=busy, transaction_mode="IMMEDIATE")) == ids


@pytest.mark.parametrize(("name", "in_memory", "ids"), [
    ("file:/srv/db.sqlite3?cache=shared", False, ["W013"]),
    ("file:/srv/db.sqlite3?mode=rwc&cache=shared", False, ["W013"]),
    ("file:/srv/db.sqlite3?cache=private", False, []),
    (Path("/srv/cache=shared"), False, []),
    ("file:memorydb_default?mode=memory&cache=shared", True, []),
])  # fmt: skip
def test_sqlite_shares_no_cache_of_a_file(found, name, in_memory, ids):
    sqlite = Sqlite(name=name, in_memory=in_memory, transaction_mode="IMMEDIATE")
    assert found(sqlite) == ids


@pytest.mark.parametrize(("version", "ids"), [((3, 32, 3), ["E006"]), ((3, 33, 0), [])])
def test_sqlite_needs_update_from(found, version, ids):
    assert found(Sqlite(version=version, transaction_mode="IMMEDIATE")) == ids


@pytest.mark.parametrize(("keys", "databases"), [
    *(({}, databases) for databases in (None, [], ["other"])),
    ({"DATABASE": "queue"}, ["default"]), ({"LEASE": -1}, ["default"]),  # another one, unusable settings
])  # fmt: skip
def test_only_the_queues_database_is_checked_when_asked_for(found, settings, keys, databases):
    settings.AYEWORK = keys
    assert found(server("mysql", skip_locked=False), databases) == []
