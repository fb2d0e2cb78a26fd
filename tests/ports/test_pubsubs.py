"""PubSubs: how one is chosen, and how listening threads start, recover and end."""

import gc
import os
import threading
from asyncio import CancelledError
from urllib.parse import urlsplit

import pytest
from django.db import connection, transaction

from django_ayework.flow.notify import Notification, reaches_remote, receives_remote, sender
from django_ayework.ports.pubsub import (
    BUILT_IN,
    MariadbPubSub,
    PostgresPubSub,
    PubSub,
    RedisPubSub,
    SqlitePubSub,
    forget_all,
    get_pubsub,
)
from django_ayework.ports.pubsub import base as listening
from django_ayework.ports.pubsub.base import LocalPubSub, PollingPubSub
from django_ayework.rules.notifications import due_from_text
from django_ayework.store import notifications
from django_ayework.store.database import run
from django_ayework.testing.factories import WorkFactory
from tests.app.models import Order
from tests.processes import eventually
from tests.proxies import Proxy
from tests.races.holding import transaction_elsewhere

Receiver = notifications.NotificationReceiver
transactional = pytest.mark.django_db(transaction=True)


def on(vendor):
    """Mark a test that commits, and runs on this database only."""
    return lambda test: transactional(pytest.mark.vendors(vendor)(test))


on_postgres, on_sqlite, on_mysql = map(on, ("postgresql", "sqlite", "mysql"))


class OwnPubSub(LocalPubSub):
    """A PubSub of a project."""


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_settings_name_the_pubsub(settings, name):
    settings.AYEWORK = {"PUBSUB": name}
    assert get_pubsub() is BUILT_IN[name]


@transactional
@pytest.mark.parametrize("given", [{}, {"REDIS_URL": "redis://nowhere"}])
def test_the_default_follows_the_database(settings, database_vendor, given):
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


@pytest.mark.parametrize("given", [OwnPubSub, f"{__name__}.OwnPubSub"])
def test_a_pubsub_of_a_project_is_a_class_or_its_path(settings, given):
    settings.AYEWORK = {"PUBSUB": given}
    assert type(get_pubsub()).__name__ == "OwnPubSub"
    assert get_pubsub() is get_pubsub()


class Plain:
    """A PubSub of a project without flags."""

    publish = subscribe = close = lambda self, *arguments: None


def test_a_pubsub_without_flags_is_slow_reaches_others_and_is_not_live(settings, monkeypatch):
    sent = []
    monkeypatch.setattr(sender, "send_soon", lambda notification, is_quick: sent.append(is_quick))
    settings.AYEWORK = {"PUBSUB": Plain}
    assert isinstance(get_pubsub(), PubSub)
    sender.publish(Notification(ended=["a"]))
    assert (receives_remote(), reaches_remote(), sent) == (False, True, [False])


def test_a_pubsub_that_only_polls_sends_nothing(settings):
    settings.AYEWORK = {"PUBSUB": "polling"}
    polling, messages = PollingPubSub(), []
    unsubscribe = polling.subscribe("due", messages.append)
    polling.publish("due", "hello")
    unsubscribe()
    polling.close()
    assert (messages, reaches_remote()) == ([], False)


@on_postgres
def test_a_message_is_sent_past_the_log_of_queries_and_outside_of_transactions(django_assert_num_queries):
    with django_assert_num_queries(0):
        PostgresPubSub().publish("due", "hello")
    assert PostgresPubSub().is_quick
    with transaction.atomic():
        assert not PostgresPubSub().is_quick


def test_on_mariadb_only_a_listener_to_due_works_starts_a_thread():
    pubsub = MariadbPubSub()
    for channel in ("ended", "revoked", "answered"):
        pubsub.subscribe(channel, lambda message: None)()
    assert pubsub._thread is None


def test_to_forget_touches_what_can_be_forgotten_only():
    forget_all()
    assert not any(getattr(pubsub, "is_live", False) for pubsub in BUILT_IN.values())


def status_of_fork(act):
    """Fork; return the status of the child, which is what this answers there."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os._exit(act())


def test_a_forked_process_has_none_of_its_parents_listeners():
    pubsub, heard = BUILT_IN["local"], []
    unsubscribe = pubsub.subscribe("due", heard.append)
    assert status_of_fork(lambda: pubsub.publish("due", "hello") or len(heard)) == 0
    pubsub.publish("due", "hello")
    unsubscribe()
    assert heard == ["hello"]


@on_postgres
def test_a_forked_process_leaves_its_parents_session_alone():
    pubsub = BUILT_IN["postgres"]
    heard = hear(pubsub)

    def is_remembered():
        remembered = pubsub.is_live or threads("ayework-listener")
        gc.collect()
        return 1 if remembered else 0

    assert status_of_fork(is_remembered) == 0
    pubsub.publish("due", "hello")
    eventually(lambda: "hello" in heard)
    assert heard == ["", "hello"], "it was cut off"
    pubsub.close()


@pytest.fixture
def listener(request):
    """A PubSub with a thread: the one of the database, or the one that the test names."""
    own = {"postgresql": PostgresPubSub, "sqlite": SqlitePubSub, "mysql": MariadbPubSub}
    pubsub = getattr(request, "param", own[connection.vendor])()
    yield pubsub
    pubsub.close()


@pytest.fixture
def lent(monkeypatch):
    """Sessions are lent by a pooler."""
    monkeypatch.setattr(Receiver, "_is_lent", lambda self: True)


@pytest.fixture
def silent(lent, monkeypatch):
    """Sessions are lent by a pooler, and receive nothing."""
    monkeypatch.setattr(Receiver, "_take_in", lambda self: None)


def threads(name):
    return [thread for thread in threading.enumerate() if thread.name == name]


def listen(listener, channel="due"):
    heard = []
    listener.subscribe(channel, heard.append)
    return heard


def hear(listener, channel="due"):
    """Listen, and wait until something would be heard."""
    heard = listen(listener, channel)
    eventually(lambda: listener.is_live and "" in heard)
    return heard


@on_postgres
def test_a_listener_reconnects_when_its_session_has_ended_and_asks_for_a_poll(listener, caplog):
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


@on_postgres
def test_a_session_without_an_echo_is_replaced(listener, monkeypatch):
    """As a network does that swallows everything: the test of the session has no echo."""
    monkeypatch.setattr(notifications, "TEST_EVERY", 0.05)
    monkeypatch.setattr(notifications, "ECHO_WITHIN", 0.05)
    monkeypatch.setattr(listening, "FIRST_PAUSE", 0.01)
    heard = hear(listener)
    monkeypatch.setattr(Receiver, "_take_in", lambda self: None)
    eventually(lambda: not listener.is_live)
    monkeypatch.undo()
    heard.clear()
    eventually(lambda: listener.is_live and "" in heard)


@on_postgres
def test_a_session_tests_itself_and_is_kept_while_it_hears(listener, monkeypatch):
    monkeypatch.setattr(notifications, "TEST_EVERY", 0.02)
    echoes, note = [], Receiver._note
    monkeypatch.setattr(
        Receiver, "_note", lambda self, name, text: (echoes.append(name), note(self, name, text))
    )
    heard = hear(listener)
    eventually(lambda: len(echoes) > 5)
    assert (heard, listener.is_live) == ([""], True)
    assert {name.startswith("ayework_test_") for name in echoes} == {True}


@pytest.mark.vendors("sqlite")
@pytest.mark.parametrize("listener", [RedisPubSub], indirect=True)
def test_a_connection_to_redis_is_kept_while_it_answers_and_replaced_when_the_network_swallows_it(
    settings, redis_url, listener, monkeypatch
):
    monkeypatch.setattr("django_ayework.ports.pubsub.TEST_EVERY", 0.05)
    parts = urlsplit(redis_url)
    with Proxy(parts.hostname, parts.port or 6379) as proxy:
        settings.AYEWORK = {"REDIS_URL": f"redis://127.0.0.1:{proxy.port}{parts.path}"}
        heard = hear(listener)
        threading.Event().wait(1.0)
        assert (heard, listener.is_live) == ([""], True)
        monkeypatch.setattr("django_ayework.ports.pubsub.ANSWER_WITHIN", 0.05)
        proxy.hush()
        eventually(lambda: not listener.is_live)
        monkeypatch.undo()
        heard.clear()
        proxy.mend()
        eventually(lambda: listener.is_live and "" in heard)
        listener.publish("due", "again")
        eventually(lambda: "again" in heard)


@on_postgres
def test_behind_a_pooler_that_lends_sessions_a_warning_names_the_setting(
    listener, silent, monkeypatch, caplog
):
    monkeypatch.setattr(notifications, "PROOF_WITHIN", 0.05)
    heard = listen(listener)
    eventually(lambda: "PUBSUB_DATABASE" in caplog.text)
    assert (heard, listener.is_live) == ([], False)
    assert len(caplog.records) == 1


@on_postgres
def test_behind_a_pooler_an_unsubscription_does_not_wait_for_the_proof(listener, silent, monkeypatch, caplog):
    monkeypatch.setattr(notifications, "PROOF_WITHIN", 1000.0)
    unsubscribe = listener.subscribe("due", lambda message: None)
    eventually(lambda: listener._receiver)
    unsubscribe()
    listener.rest()
    assert listener._thread is None
    assert not caplog.records


@on_postgres
def test_behind_a_pooler_that_keeps_a_session_messages_are_received(listener, lent):
    heard = hear(listener)
    listener.publish("due", "hello")
    eventually(lambda: "hello" in heard)


@on_postgres
def test_without_psycopg_3_it_says_so_and_hears_nothing(listener, monkeypatch, caplog):
    class Session:
        def close(self): ...

    monkeypatch.setattr(notifications, "own_session", lambda alias: Session())
    listen(listener)
    eventually(lambda: "psycopg 3" in caplog.text)
    assert not listener.is_live


@on_postgres
def test_it_listens_by_the_alias_of_the_settings_and_makes_calls_there_when_they_are_due(
    listener, settings, monkeypatch
):
    asked, own, calls = [], notifications.own_session, []
    monkeypatch.setattr(notifications, "own_session", lambda alias: (asked.append(alias), own("default"))[1])
    settings.AYEWORK = {"PUBSUB_DATABASE": "direct"}
    hear(listener)
    assert asked == ["direct"]
    for number, seconds in ((3, 0.06), (1, 0.0), (2, 0.03)):
        listener.call_later(seconds, lambda n=number: calls.append((n, threading.current_thread().name)))
    eventually(lambda: len(calls) == 3)
    assert calls == [(number, "ayework-listener") for number in (1, 2, 3)]


@on_mysql
def test_a_work_that_becomes_pending_is_a_message(listener):
    heard = listen(listener)
    eventually(lambda: heard)  # that it begins to watch
    heard.clear()
    WorkFactory()
    eventually(lambda: heard)
    assert [due_from_text(text, "elsewhere").places for text in heard] == [{("default", "shop.add")}]
    assert not listener.is_live


@on_mysql
def test_a_watch_reconnects_when_its_session_was_killed(listener, monkeypatch, caplog):
    monkeypatch.setattr(listening, "FIRST_PAUSE", 0.01)
    caplog.set_level("INFO", logger="django_ayework")
    heard = listen(listener)
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
@pytest.mark.parametrize(("listener", "reason"), [
    (MariadbPubSub, "neither MariaDB nor MySQL"), (RedisPubSub, "address of a Redis server"),
], indirect=["listener"])  # fmt: skip
def test_where_nothing_can_be_received_a_warning_says_why(listener, reason, caplog):
    listen(listener)
    eventually(lambda: reason in caplog.text)


@on_sqlite
def test_each_commit_to_the_file_is_a_message_and_a_rollback_is_none(listener):
    due, ended = hear(listener, "due"), hear(listener, "ended")
    due.clear()
    ended.clear()
    with transaction.atomic():
        Order.objects.create(reference="1")
        transaction.set_rollback(True)
    assert not Order.objects.exists()
    Order.objects.create(reference="2")
    eventually(lambda: due and ended)
    assert (due, ended) == ([""], [""])


def test_a_thread_that_the_system_refused_is_started_for_the_next_subscription(listener, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError):
            listen(listener)
    hear(listener)


@on_sqlite
@pytest.mark.parametrize("kind", [CancelledError, SystemExit])
def test_a_listener_of_a_project_ends_no_thread_whatever_it_raises(listener, kind):
    raised = list[str]()

    def raises(message: str) -> None:
        raised.append(message)
        raise kind

    due = hear(listener, "due")
    listener.subscribe("due", raises)
    for number in (1, 2):
        due.clear()
        raised.clear()
        Order.objects.create(reference=str(number))
        eventually(lambda: due and raised)
    assert not listener.is_gone


@on_sqlite
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_has_died_is_started_again_for_the_next_subscription(listener, monkeypatch):
    """A web process has no watchdog. Here the log cannot be written."""

    def refuse(*args):
        raise RuntimeError("no luck")

    with monkeypatch.context() as patch:
        patch.setattr(listener, "open_receiver", refuse)
        patch.setattr(listening.logger, "warning", refuse)
        listen(listener)
        eventually(lambda: listener.is_gone)
    hear(listener)


@on_sqlite
def test_the_thread_lingers_after_the_last_unsubscription_or_until_it_is_closed(listener, monkeypatch):
    monkeypatch.setattr(listening, "LINGER", 3600)
    unsubscribe = listener.subscribe("due", lambda message: None)
    [thread] = threads("ayework-commits")
    unsubscribe()
    hear(listener)
    assert threads("ayework-commits") == [thread]
    listener.rest()
    assert thread.is_alive(), "there is a listener"
    listener.close()
    assert not thread.is_alive()
    monkeypatch.setattr(listening, "LINGER", 0.05)
    unsubscribe = listener.subscribe("due", lambda message: None)
    [thread] = threads("ayework-commits")
    unsubscribe()
    thread.join(10)
    assert not thread.is_alive()
    assert not listener.is_live


@on_mysql
def test_a_watch_whose_table_is_locked_says_so_once(listener, monkeypatch, caplog):
    """It can connect meanwhile."""
    monkeypatch.setattr(listening, "FIRST_PAUSE", 0.01)
    caplog.set_level("INFO", logger="django_ayework")
    opened, open_receiver = list[object](), listener.open_receiver
    monkeypatch.setattr(listener, "open_receiver", lambda: opened.append(1) or open_receiver())
    with transaction_elsewhere(lambda: run("LOCK TABLES django_ayework_work WRITE")):
        listen(listener)
        eventually(lambda: len(opened) > 3)
    eventually(lambda: len(caplog.records) > 1)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
