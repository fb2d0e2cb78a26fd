"""The engine's own statements are bounded in time; those of handlers are the project's affair."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.conf import settings
from django.db import OperationalError, connection, connections

from django_ayework import enqueue, work
from django_ayework.store.database import has_timed_out
from django_ayework.store.dialects import PostgreSQL
from django_ayework.store.sessions import engine_session
from django_ayework.testing import running_worker
from django_ayework.worker import settler
from django_ayework.worker.in_flight import LeaseThread
from django_ayework.worker.worker import Worker

#: By vendor: the seconds that a statement of this session may take, and a statement that takes long.
BOUND = {
    "postgresql": "SELECT setting::int / 1000.0 FROM pg_settings WHERE name = 'statement_timeout'",
    "mysql": "SELECT @@max_statement_time",
}
SLOW = {"postgresql": "SELECT pg_sleep(20)", "mysql": "SELECT SLEEP(20)"}

servers = pytest.mark.vendors("postgresql", "mysql")
#: Behind PgBouncer (see tests/pgbouncer.py) no session is the engine's own.
is_pooled = bool(settings.DATABASES["default"].get("DISABLE_SERVER_SIDE_CURSORS"))
own_session = pytest.mark.skipif(is_pooled, reason="sessions are lent here")


def ask(statement: str) -> object:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()[0]


def in_thread(act: Callable[[], object]) -> object:
    """Do something in a thread, and so on a connection, of its own."""

    def run() -> object:
        try:
            return act()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run).result(30)


def bounded() -> object:
    with engine_session():
        return ask(BOUND[connection.vendor])


def unbounded() -> object:
    return ask(BOUND[connection.vendor])


@work(name="worker.bound_of_handler")
def bound_of_handler() -> float:
    return float(unbounded())


@servers
@own_session
@pytest.mark.parametrize("timeout", [2.5, None])
def test_a_session_of_the_engine_is_bounded(settings, timeout):
    settings.AYEWORK = {"STATEMENT_TIMEOUT": timeout}
    assert float(in_thread(unbounded)) == float(unbounded())
    assert float(in_thread(bounded)) == (timeout or float(unbounded()))


@servers
@pytest.mark.usefixtures("quick_polls")
def test_a_handlers_session_is_left_alone():
    before = float(unbounded())
    with running_worker():
        assert enqueue(bound_of_handler()).result(timeout=20) == before


@servers
@own_session
def test_a_statement_that_takes_too_long_is_ended_and_known_for_what_it_is(settings):
    settings.AYEWORK = {"STATEMENT_TIMEOUT": 0.05}

    def wait() -> object:
        with engine_session(), pytest.raises(OperationalError) as caught:
            ask(SLOW[connection.vendor])
        return has_timed_out(caught.value)

    assert in_thread(wait) is True


@pytest.mark.skipif(not is_pooled, reason="the engine has sessions of its own here")
def test_behind_a_pooler_no_session_is_touched():
    assert in_thread(bounded) == in_thread(unbounded)


@own_session
@pytest.mark.vendors("postgresql")
def test_a_session_that_a_pooler_lends_is_left_alone(monkeypatch):
    """A pooler names another process than the one that serves the statement."""
    session_setup = PostgreSQL.session_setup

    def for_another_process(*args):
        statement, [*bounds, server] = session_setup(*args)
        return statement, [*bounds, server + 1]

    monkeypatch.setattr(PostgreSQL, "session_setup", for_another_process)
    assert in_thread(bounded) == in_thread(unbounded)


@own_session
@pytest.mark.vendors("postgresql")
def test_the_engine_compiles_no_statement():
    def jit() -> object:
        with engine_session():
            return ask("SHOW jit")

    assert in_thread(jit) == "off"


@servers
@own_session
@pytest.mark.usefixtures("quick_polls")
def test_every_thread_of_the_engine_has_a_bounded_session(monkeypatch):
    found: dict[str, float] = {}

    def note(*args) -> None:
        found[threading.current_thread().name] = float(unbounded())

    def note_and_settle(*args):
        note()
        return settle(*args)

    settle = settler.settle
    monkeypatch.setattr(settler, "settle", note_and_settle)
    monkeypatch.setattr(LeaseThread, "turn", lambda self: note() or 0.25)
    monkeypatch.setattr(Worker, "_is_drained", note)
    enqueue(bound_of_handler())
    worker = Worker(burst=True)
    worker.start()
    while len(found) < 3 and worker._thread is not None:
        worker._thread.join(0.01)
    worker.stop()
    assert found == {"ayework-claiming": 15.0, "ayework-settling": 15.0, "ayework-leases": 15.0}
