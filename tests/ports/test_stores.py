"""The Stores that come with the package do what a Store must do."""

from __future__ import annotations

import unittest
from datetime import timedelta
from typing import Any

import pytest
from django.core.cache import caches

from django_ayework.models import StoreEntry
from django_ayework.ports.kv import Store, get_store
from django_ayework.ports.kv import cache as cache_module
from django_ayework.ports.kv.cache import CacheStore
from django_ayework.ports.kv.database import DatabaseStore
from django_ayework.ports.kv.local import LocalStore
from django_ayework.testing import now, time_travel
from django_ayework.testing.conformance import StoreConformance
from tests.rules.moments import NOON


class TestLocalStore(StoreConformance):
    def make_store(self) -> Store:
        return LocalStore()


@pytest.mark.django_db(transaction=True)
@pytest.mark.races
class TestDatabaseStore(StoreConformance):
    def make_store(self) -> Store:
        return DatabaseStore()


class TestCacheStoreInMemory(StoreConformance):
    def make_store(self) -> Store:
        return CacheStore()


@pytest.mark.usefixtures("redis_cache")
class TestCacheStoreInRedis(StoreConformance):
    def make_store(self) -> Store:
        return CacheStore()


class ForgetfulStore(LocalStore):
    """A Store of a project that reads and writes in two steps."""

    def increment(self, key: str, by: int = 1, ttl: Any = None) -> int:
        number = int(self.get(key) or 0) + by
        self.set(key, str(number), ttl)  # its time begins anew, which it must not
        return number


def test_the_suite_can_be_used_with_unittest_and_finds_what_is_wrong():
    class Forgetful(StoreConformance, unittest.TestCase):
        def make_store(self) -> Store:
            return ForgetfulStore()

    outcome = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Forgetful).run(outcome)

    assert outcome.testsRun > 20
    assert {failed.id().rpartition(".")[2] for failed, _ in outcome.failures + outcome.errors} >= {
        "test_incrementing_gives_a_new_key_its_time_and_leaves_that_of_others"
    }


# Choosing one


@pytest.mark.parametrize(("name", "kind"), [("database", DatabaseStore), ("cache", CacheStore)])
def test_the_settings_name_the_store(settings, name, kind):
    settings.AYEWORK = {"STORE": name}

    assert isinstance(get_store(), kind)


def test_the_database_is_the_default(settings):
    settings.AYEWORK = {}

    assert isinstance(get_store(), DatabaseStore)


def test_the_local_store_is_one_for_the_whole_process(settings):
    settings.AYEWORK = {"STORE": "local"}
    get_store().set("tests-one", "1")
    settings.AYEWORK = {"STORE": "local", "LEASE": 5}

    assert get_store().get("tests-one") == "1"


@pytest.mark.parametrize("given", [ForgetfulStore, f"{__name__}.ForgetfulStore"])
def test_a_store_of_ones_own_is_a_class_or_its_path(settings, given):
    settings.AYEWORK = {"STORE": given}

    assert type(get_store()).__name__ == "ForgetfulStore"
    assert get_store() is get_store()


def test_a_store_of_ones_own_may_be_an_object(settings):
    mine = CacheStore("limits")
    settings.AYEWORK = {"STORE": mine}

    assert get_store() is mine


# What is special about each


@pytest.mark.django_db
def test_what_the_database_store_keeps_is_pruned_once_it_has_run_out():
    from django_ayework.flow.maintenance import prune

    store = DatabaseStore()
    store.set("old", "", ttl=60)
    store.set("new", "", ttl=120)
    store.set("for good", "")
    time_travel(61)
    prune()

    assert StoreEntry.objects.count() == 2
    assert [store.get(key) for key in ("old", "new", "for good")] == [None, "", ""]


@pytest.mark.django_db(transaction=True)
def test_what_the_database_store_does_in_a_transaction_is_part_of_it():
    from django.db import transaction

    store = DatabaseStore()
    store.set("kept", "1")
    with transaction.atomic():
        store.increment("kept")
        store.set("new", "1")
        transaction.set_rollback(True)

    assert (store.get("kept"), store.get("new")) == ("1", None)


@pytest.mark.django_db
def test_keys_of_the_store_are_not_those_of_claims():
    from django_ayework.flow.services import EngineServices

    DatabaseStore().set("claim:report", "")

    assert EngineServices().claim("report")


def test_the_local_store_forgets_what_has_run_out():
    store = LocalStore()
    for number in range(100):
        store.increment(f"k{number}", ttl=60)
    time_travel(61)
    store.set("one more", "")

    assert list(store._entries) == ["one more"]


def test_a_cache_keeps_entries_no_longer_than_it_must(monkeypatch):
    kept = []
    monkeypatch.setattr(caches["default"], "set", lambda key, value, timeout: kept.append(timeout))
    store = CacheStore()
    store.set("brief", "", ttl=0.5)
    store.set("for good", "")
    store.set("long", "", ttl=timedelta(days=60))

    assert kept == [1 + cache_module.SLACK, None, 60 * 86_400 + cache_module.SLACK]


def test_a_lock_that_is_never_given_back_is_named(monkeypatch):
    monkeypatch.setattr(cache_module, "PATIENCE", 0.0)
    monkeypatch.setattr(caches["default"], "add", lambda key, value, timeout: False)

    with pytest.raises(TimeoutError, match="the cache 'default' keeps 'mine' locked"):
        CacheStore().set("mine", "")


def test_a_lock_that_has_run_out_is_not_taken_from_its_next_holder(monkeypatch):
    monkeypatch.setattr(cache_module, "LOCK_LIFE", 0)
    deleted = []
    monkeypatch.setattr(caches["default"], "add", lambda key, value, timeout: True)
    monkeypatch.setattr(caches["default"], "delete", deleted.append)
    CacheStore().set("mine", "")

    assert deleted == []


def test_the_local_store_holds_a_key_until_its_very_end():
    moment = NOON
    store = LocalStore(now=lambda: moment)
    store.set("k", "v", ttl=60)
    moment = NOON + timedelta(seconds=60, microseconds=-1)
    assert store.get("k") == "v"
    moment = NOON + timedelta(seconds=60)
    assert store.get("k") is None


def test_a_moment_the_store_cannot_tell_is_no_end():
    store = LocalStore()
    store.set("k", "v", ttl=1e300)

    assert store.get("k") == "v"
    assert now().year < 9999
