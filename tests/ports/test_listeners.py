"""PubSubs that listen by a thread, those of the databases: what they hear, and how they come and go."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from django_ayework.ports.pubsub import BUILT_IN
from django_ayework.ports.pubsub import listener as listening
from django_ayework.ports.pubsub.postgres import PostgresPubSub
from django_ayework.ports.pubsub.watching import MariadbPubSub, SqlitePubSub
from django_ayework.rules.notifications import due_from_text
from django_ayework.store import notifications
from django_ayework.testing.factories import WorkFactory
from tests.app.models import Order
from tests.processes import eventually

transactional = pytest.mark.django_db(transaction=True)
on_postgres = pytest.mark.vendors("postgresql")
on_sqlite = pytest.mark.vendors("sqlite")
on_mariadb = pytest.mark.vendors("mysql")


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
mariadb = pytest.mark.parametrize("listener", [MariadbPubSub], indirect=True)


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
@postgres
def test_it_makes_calls_in_the_thread_that_listens_when_they_are_due(listener):
    calls: list[tuple[int, str]] = []
    hear(listener)
    for number, seconds in ((3, 0.06), (1, 0.0), (2, 0.03)):
        listener.call_later(
            seconds, lambda number=number: calls.append((number, threading.current_thread().name))
        )
    eventually(lambda: len(calls) == 3)
    assert calls == [(1, "ayework-listener"), (2, "ayework-listener"), (3, "ayework-listener")]


@transactional
@on_mariadb
@mariadb
def test_a_work_that_becomes_pending_is_told_and_workers_rest_no_longer_for_it(listener):
    heard: list[str] = []
    listener.subscribe("due", heard.append)
    eventually(lambda: heard)  # that it begins to watch
    heard.clear()
    WorkFactory()
    eventually(lambda: heard)
    assert [due_from_text(text, "elsewhere").places for text in heard] == [{("default", "shop.add")}]
    assert not listener.is_live


@transactional
@on_mariadb
@mariadb
def test_a_watch_comes_back_when_its_session_was_killed(listener, monkeypatch, caplog):
    monkeypatch.setattr(listening, "FIRST_PAUSE", 0.01)
    caplog.set_level("INFO", logger="django_ayework")
    heard: list[str] = []
    listener.subscribe("due", heard.append)
    eventually(lambda: heard)
    heard.clear()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
        )
        for (id,) in cursor.fetchall():
            cursor.execute(f"KILL {id}")
    eventually(lambda: len(caplog.records) > 1)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert heard == [""]


@on_sqlite
@mariadb
def test_on_another_database_it_says_that_nothing_is_heard(listener, caplog):
    listener.subscribe("due", lambda message: None)
    eventually(lambda: "neither MariaDB nor MySQL" in caplog.text)


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
