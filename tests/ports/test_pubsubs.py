"""What carries wake-ups: the ones that come with the package do what they must."""

from __future__ import annotations

import os
import threading
import unittest
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from django_ayework.ports.pubsub import PubSub, get_pubsub, listening
from django_ayework.ports.pubsub.chosen import BUILT_IN, forget_all
from django_ayework.ports.pubsub.local import LocalPubSub
from django_ayework.ports.pubsub.polling import PollingPubSub
from django_ayework.ports.pubsub.postgres import PostgresPubSub
from django_ayework.ports.pubsub.protocol import is_live, is_quick, reaches_others
from django_ayework.ports.pubsub.redis import RedisPubSub
from django_ayework.ports.pubsub.sqlite import SqlitePubSub
from django_ayework.store import notifications
from django_ayework.testing.conformance import PubSubConformance
from tests.app.models import Order
from tests.processes import eventually

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
    without = "redis" if given else "local"
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


@pytest.fixture
def listener(request: Any) -> Iterator[Any]:
    """A PubSub that listens by a thread, closed at the end."""
    pubsub = request.param()
    yield pubsub
    pubsub.close()


def threads(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


postgres = pytest.mark.parametrize("listener", [PostgresPubSub], indirect=True)
sqlite = pytest.mark.parametrize("listener", [SqlitePubSub], indirect=True)


def hear(listener: Any, channel: str = "due") -> list[str]:
    """Listen, and wait until something would be heard."""
    heard: list[str] = []
    listener.subscribe(channel, heard.append)
    eventually(lambda: listener.is_live and "" in heard)
    return heard


@transactional
@on_postgres
@postgres
def test_a_listener_comes_back_when_its_session_has_ended_and_lets_everybody_look(listener, caplog):
    caplog.set_level("INFO", logger="django_ayework")
    heard = hear(listener)
    heard.clear()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%%' "
            "AND datname = current_database()"
        )
        assert cursor.rowcount == 1
    eventually(lambda: "" in heard and listener.is_live)
    listener.publish("due", "again")
    eventually(lambda: "again" in heard and len(caplog.records) > 1)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "cut off" in caplog.text


@transactional
@on_postgres
@postgres
def test_a_session_that_hears_nothing_any_more_is_replaced(listener, monkeypatch):
    """As a network does that swallows everything: the test of the session has no echo."""
    monkeypatch.setattr(notifications, "TEST_EVERY", 0.05)
    monkeypatch.setattr(notifications, "ECHO_WITHIN", 0.05)
    monkeypatch.setattr(listening, "FIRST_PAUSE", 0.01)
    heard = hear(listener)
    monkeypatch.setattr(notifications.Ear, "_take_in", lambda self: None)
    eventually(lambda: not listener.is_live)
    monkeypatch.undo()
    heard.clear()
    eventually(lambda: listener.is_live and "" in heard)


@transactional
@on_postgres
@postgres
def test_a_session_tests_itself_and_is_kept_while_it_hears(listener, monkeypatch):
    monkeypatch.setattr(notifications, "TEST_EVERY", 0.02)
    echoes: list[str] = []
    note = notifications.Ear._note
    monkeypatch.setattr(
        notifications.Ear, "_note", lambda self, name, text: (echoes.append(name), note(self, name, text))
    )
    heard = hear(listener)
    eventually(lambda: len(echoes) > 5)
    assert (heard, listener.is_live) == ([""], True)
    assert {name.startswith("ayework_test_") for name in echoes} == {True}


@transactional
@on_postgres
@postgres
def test_behind_a_pooler_that_lends_sessions_it_says_what_to_do_and_hears_nothing(
    listener, monkeypatch, caplog
):
    monkeypatch.setattr(notifications, "PROOF_WITHIN", 0.05)
    monkeypatch.setattr(notifications.Ear, "_is_lent", lambda self: True)
    monkeypatch.setattr(notifications.Ear, "_take_in", lambda self: None)
    heard: list[str] = []
    listener.subscribe("due", heard.append)
    eventually(lambda: "PUBSUB_DATABASE" in caplog.text)
    assert (heard, listener.is_live) == ([], False)
    assert len(caplog.records) == 1


@transactional
@on_postgres
@postgres
def test_behind_a_pooler_whoever_leaves_does_not_wait_for_the_proof(listener, monkeypatch, caplog):
    monkeypatch.setattr(notifications, "PROOF_WITHIN", 1000.0)
    monkeypatch.setattr(notifications.Ear, "_is_lent", lambda self: True)
    monkeypatch.setattr(notifications.Ear, "_take_in", lambda self: None)
    unsubscribe = listener.subscribe("due", lambda message: None)
    eventually(lambda: listener._ear)
    unsubscribe()
    listener.rest()
    assert listener._thread is None
    assert not caplog.records


@transactional
@on_postgres
@postgres
def test_behind_a_pooler_that_lends_a_session_for_good_it_hears(listener, monkeypatch):
    monkeypatch.setattr(notifications.Ear, "_is_lent", lambda self: True)
    heard = hear(listener)
    listener.publish("due", "hello")
    eventually(lambda: "hello" in heard)


@transactional
@on_postgres
@postgres
def test_without_psycopg_3_it_says_so_and_hears_nothing(listener, monkeypatch, caplog):
    class Session:
        def close(self) -> None: ...

    monkeypatch.setattr(notifications, "own_session", lambda alias: Session())
    listener.subscribe("due", lambda message: None)
    eventually(lambda: "psycopg 3" in caplog.text)
    assert not listener.is_live


@transactional
@on_postgres
@postgres
def test_it_listens_by_the_alias_of_the_settings(listener, settings, monkeypatch):
    asked: list[str] = []
    own_session = notifications.own_session
    monkeypatch.setattr(
        notifications, "own_session", lambda alias: (asked.append(alias), own_session("default"))[1]
    )
    settings.AYEWORK = {"PUBSUB_DATABASE": "direct"}
    hear(listener)
    assert asked == ["direct"]


@transactional
@on_postgres
def test_a_message_is_sent_past_the_log_of_queries_and_outside_of_transactions(django_assert_num_queries):
    from django.db import transaction

    with django_assert_num_queries(0):
        PostgresPubSub().publish("due", "hello")
    assert PostgresPubSub().is_quick
    with transaction.atomic():
        assert not PostgresPubSub().is_quick


@transactional
@on_sqlite
@sqlite
def test_any_commit_to_the_file_means_look(listener):
    due, ended = hear(listener, "due"), hear(listener, "ended")
    due.clear()
    ended.clear()
    Order.objects.create(reference="1")
    eventually(lambda: due and ended)
    assert set(due + ended) == {""}


@transactional
@on_sqlite
@sqlite
def test_what_is_rolled_back_or_read_means_nothing(listener):
    from django.db import transaction

    heard = hear(listener)
    with transaction.atomic():
        Order.objects.create(reference="1")
        transaction.set_rollback(True)
    assert not Order.objects.exists()
    before = len(heard)
    Order.objects.create(reference="2")
    eventually(lambda: len(heard) > before)
    assert len(heard) == before + 1 == 2


@transactional
@on_sqlite
@sqlite
def test_the_thread_ends_when_nobody_listens_any_more(listener, monkeypatch):
    monkeypatch.setattr(listening, "LINGER", 0.05)
    unsubscribe = listener.subscribe("due", lambda message: None)
    [thread] = threads("ayework-commits")
    unsubscribe()
    thread.join(10)
    assert not thread.is_alive()
    assert not listener.is_live


@transactional
@on_sqlite
@sqlite
def test_the_thread_stays_for_a_moment_unless_it_is_told_to_rest(listener, monkeypatch):
    monkeypatch.setattr(listening, "LINGER", 3600)
    unsubscribe = listener.subscribe("due", lambda message: None)
    [thread] = threads("ayework-commits")
    unsubscribe()
    hear(listener)
    assert threads("ayework-commits") == [thread]
    listener.rest()
    assert thread.is_alive(), "somebody listens"
    listener.close()
    assert not thread.is_alive()


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


@transactional
@on_postgres
def test_a_forked_process_leaves_its_parents_session_alone():
    pubsub: Any = BUILT_IN["postgres"]
    heard = hear(pubsub)
    child = os.fork()
    if not child:
        import gc

        forgotten = not pubsub.is_live and not threads("ayework-listener")
        gc.collect()
        os._exit(0 if forgotten else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    pubsub.publish("due", "hello")
    eventually(lambda: "hello" in heard)
    assert heard == ["", "hello"], "it was cut off"
    pubsub.close()


def test_to_forget_touches_what_can_be_forgotten_only():
    forget_all()
    assert all(not is_live(pubsub) for pubsub in BUILT_IN.values())
