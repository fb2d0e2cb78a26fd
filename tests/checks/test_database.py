"""System checks of the queue's database."""

from types import SimpleNamespace

import pytest
from django.core.checks import Tags, run_checks
from django.core.checks.registry import registry as checks_registry

from django_ayework import checks
from django_ayework.flow import readiness


class Sqlite:
    vendor = "sqlite"

    def __init__(self, journal_mode="wal", **options):
        self.journal_mode = journal_mode
        self.settings_dict = {"OPTIONS": options}

    def cursor(self):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *error): ...

    def execute(self, statement):
        assert statement == "PRAGMA journal_mode"

    def fetchone(self):
        return (self.journal_mode,)


class Server:
    alias = "queue"

    def __init__(self, vendor, skip_locked=True, isolation="read committed"):
        self.vendor = vendor
        self.features = SimpleNamespace(has_select_for_update_skip_locked=skip_locked)
        self.isolation = isolation


class Connections(dict):
    @property
    def settings(self):
        return self


@pytest.fixture
def found(monkeypatch):
    """The ids of what the check says of this database."""

    def check(connection, databases=("default",)):
        monkeypatch.setattr(checks, "connections", Connections(default=connection))
        monkeypatch.setattr(readiness, "isolation_levels", lambda database: [database.isolation])
        return [message.id for message in checks.check_database(None, databases=databases)]

    return check


@pytest.mark.django_db
def test_the_suites_own_database_is_fine():
    assert [m for m in run_checks(tags=[Tags.database], databases=["default"]) if "ayework" in m.id] == []


def test_it_is_a_check_of_databases():
    assert checks.check_database in checks_registry.registered_checks
    assert checks.check_database.tags == (Tags.database,)


@pytest.mark.parametrize("vendor", ["postgresql", "mysql"])
def test_e006_a_server_that_does_not_know_skip_locked(found, vendor):
    assert found(Server(vendor, skip_locked=False)) == ["ayework.E006"]
    assert found(Server(vendor, skip_locked=True)) == []


@pytest.mark.parametrize("vendor", ["postgresql", "mysql"])
@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_e007_a_server_whose_transactions_see_snapshots(found, vendor, isolation):
    assert found(Server(vendor, isolation=isolation)) == ["ayework.E007"]
    assert found(Server(vendor, isolation="read committed")) == []


def test_a_server_may_have_both_troubles(found):
    assert set(found(Server("mysql", skip_locked=False, isolation="serializable"))) == {
        "ayework.E006",
        "ayework.E007",
    }


@pytest.mark.parametrize("mode", [None, "", "DEFERRED", "deferred"])
def test_w001_sqlite_without_a_write_lock_from_the_start(found, mode):
    options = {} if mode is None else {"transaction_mode": mode}

    assert found(Sqlite(**options)) == ["ayework.W001"]


@pytest.mark.parametrize("mode", ["IMMEDIATE", "immediate", "EXCLUSIVE"])
def test_sqlite_with_a_write_lock_from_the_start(found, mode):
    assert found(Sqlite(transaction_mode=mode)) == []


@pytest.mark.parametrize("journal_mode", ["delete", "truncate", "off"])
def test_w002_sqlite_without_wal(found, journal_mode):
    assert found(Sqlite(journal_mode, transaction_mode="IMMEDIATE")) == ["ayework.W002"]


def test_sqlite_in_memory_needs_no_wal(found):
    assert found(Sqlite("memory", transaction_mode="IMMEDIATE")) == []


def test_sqlite_may_need_both(found):
    assert found(Sqlite("delete")) == ["ayework.W001", "ayework.W002"]


@pytest.mark.parametrize("databases", [None, [], ["other"]])
def test_a_database_that_is_not_asked_about_is_not_touched(found, databases):
    assert found(None, databases) == []


def test_only_the_queues_database_is_looked_at(found, settings):
    settings.AYEWORK = {"DATABASE": "queue"}

    assert found(Server("mysql", skip_locked=False), ["default"]) == []


def test_a_setting_that_cannot_be_used_is_left_to_its_own_check(found, settings):
    settings.AYEWORK = {"LEASE": -1}

    assert found(Server("mysql", skip_locked=False)) == []
