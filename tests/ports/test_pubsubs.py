"""What carries wake-ups: the ones that come with the package do what they must."""

from __future__ import annotations

import os
import unittest
from typing import Any

import pytest
from django.db import connection

from django_ayework.ports.pubsub import BUILT_IN, PubSub, forget_all, get_pubsub
from django_ayework.ports.pubsub.base import is_live, is_quick, reaches_others
from django_ayework.ports.pubsub.local import LocalPubSub, PollingPubSub
from django_ayework.ports.pubsub.postgres import PostgresPubSub
from django_ayework.ports.pubsub.redis import RedisPubSub
from django_ayework.ports.pubsub.watching import MariadbPubSub
from django_ayework.testing.conformance import PubSubConformance

transactional = pytest.mark.django_db(transaction=True)
on_postgres = pytest.mark.vendors("postgresql")
on_sqlite = pytest.mark.vendors("sqlite")


class TestLocalPubSub(PubSubConformance):
    def make_pubsub(self) -> PubSub:
        return LocalPubSub()


@transactional
@on_postgres
class TestPostgresPubSub(PubSubConformance):
    def make_pubsub(self) -> PubSub:
        return PostgresPubSub()


class TestRedisPubSub(PubSubConformance):
    @pytest.fixture(autouse=True)
    def server(self, settings: Any, redis_url: str) -> None:
        settings.AYEWORK = {"REDIS_URL": redis_url}

    def make_pubsub(self) -> PubSub:
        return RedisPubSub()


class TellTale(LocalPubSub):
    """A PubSub of a project that mixes up its channels."""

    def publish(self, channel: str, message: str) -> None:
        for other in self._listeners.channels():
            super().publish(other, message)


def test_the_suite_can_be_used_with_unittest_and_finds_what_is_wrong():
    class Wrong(PubSubConformance, unittest.TestCase):
        def make_pubsub(self) -> PubSub:
            return TellTale()

    outcome = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Wrong).run(outcome)

    assert outcome.testsRun > 8
    failed = {failed.id().rpartition(".")[2] for failed, _ in outcome.failures + outcome.errors}
    assert failed == {"test_channels_are_apart"}


# Choosing one


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_settings_name_what_carries_wake_ups(settings, name):
    settings.AYEWORK = {"PUBSUB": name}

    assert get_pubsub() is BUILT_IN[name]


@transactional
@pytest.mark.parametrize("given", [{}, {"REDIS_URL": "redis://nowhere"}])
def test_by_itself_it_goes_with_the_database(settings, database_vendor, given):
    settings.AYEWORK = given
    without = "redis" if given else "mariadb"
    expected = {"postgresql": "postgres", "sqlite": "sqlite"}.get(database_vendor, without)

    assert get_pubsub() is BUILT_IN[expected]


@on_sqlite
@pytest.mark.parametrize("name", [":memory:", "file:memorydb?mode=memory&cache=shared"])
def test_a_database_in_memory_is_no_file_to_watch(settings, monkeypatch, name):
    settings.AYEWORK = {}
    monkeypatch.setitem(connection.settings_dict, "NAME", name)

    assert get_pubsub() is BUILT_IN["local"]


@pytest.mark.parametrize("given", [TellTale, f"{__name__}.TellTale"])
def test_one_of_ones_own_is_a_class_or_its_path(settings, given):
    settings.AYEWORK = {"PUBSUB": given}

    assert type(get_pubsub()).__name__ == "TellTale"
    assert get_pubsub() is get_pubsub()


def test_one_that_says_nothing_of_itself_is_slow_and_reaches_others_and_hears_nothing():
    class Plain:
        def publish(self, channel: str, message: str) -> None: ...
        def subscribe(self, channel: str, listener: Any) -> Any: ...
        def close(self) -> None: ...

    plain = Plain()
    assert isinstance(plain, PubSub)
    assert (is_live(plain), is_quick(plain), reaches_others(plain)) == (False, False, True)


def test_polling_carries_nothing():
    pubsub, heard = PollingPubSub(), []
    unsubscribe = pubsub.subscribe("due", heard.append)
    pubsub.publish("due", "hello")
    unsubscribe()
    pubsub.close()

    assert heard == []
    assert not reaches_others(pubsub)


# What is special about each


@transactional
@on_postgres
def test_a_message_is_sent_past_the_log_of_queries_and_outside_of_transactions(django_assert_num_queries):
    from django.db import transaction

    with django_assert_num_queries(0):
        PostgresPubSub().publish("due", "hello")
    assert PostgresPubSub().is_quick
    with transaction.atomic():
        assert not PostgresPubSub().is_quick


def test_on_mariadb_nobody_but_who_waits_for_due_works_gets_a_thread():
    pubsub = MariadbPubSub()
    for channel in ("ended", "revoked", "answered"):
        pubsub.subscribe(channel, lambda message: None)()
    assert pubsub._thread is None


def test_a_forked_process_has_none_of_its_parents_listeners():
    pubsub = BUILT_IN["local"]
    heard: list[str] = []
    unsubscribe = pubsub.subscribe("due", heard.append)
    child = os.fork()
    if not child:
        pubsub.publish("due", "hello")
        os._exit(len(heard))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    pubsub.publish("due", "hello")
    unsubscribe()
    assert heard == ["hello"]


def test_to_forget_touches_what_can_be_forgotten_only():
    forget_all()
    assert all(not is_live(pubsub) for pubsub in BUILT_IN.values())
