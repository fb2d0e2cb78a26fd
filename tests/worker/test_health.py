"""The health of a worker, asked for over HTTP."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import OperationalError

from django_ayework import enqueue
from django_ayework.rules.health import Phase
from django_ayework.signals import work_succeeded
from django_ayework.store import claims
from django_ayework.testing import running_worker
from django_ayework.worker import bounds
from django_ayework.worker import worker as worker_module
from django_ayework.worker.health import HealthServer
from django_ayework.worker.threads import EngineThread
from django_ayework.worker.worker import Worker
from tests.processes import PATIENCE, eventually
from tests.worker.works import hold, quick

pytestmark = pytest.mark.usefixtures("quick_polls")


@pytest.fixture
def server() -> Iterator[HealthServer]:
    server = HealthServer("127.0.0.1", 0)
    yield server
    server.close()


def ask(server: HealthServer, question: str) -> tuple[int, dict]:
    """Send a request; return the status and the body."""
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as client:
        client.sendall(question.encode())
        server.answer()
        answer = b"".join(iter(lambda: client.recv(65_536), b""))
    head, _, body = answer.decode().partition("\r\n\r\n")
    return int(head.split()[1]), json.loads(body) if body else {}


def get(server: HealthServer, path: str) -> tuple[int, dict]:
    return ask(server, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")


def statuses(server: HealthServer) -> tuple[int, int]:
    return get(server, "/live")[0], get(server, "/ready")[0]


@contextmanager
def healthy_worker(server: HealthServer) -> Iterator[Worker]:
    """Run a worker whose health the server reports, and which is ready."""
    with running_worker() as worker:
        server.report = worker.health.report
        eventually(lambda: statuses(server) == (200, 200))
        yield worker


def test_a_worker_is_ready_from_its_registration_until_it_stops(stage, server):
    worker = Worker(concurrency=3)
    server.report = worker.health.report
    assert get(server, "/ready")[1]["reasons"] == ["the worker is starting"]
    with worker:
        eventually(lambda: statuses(server) == (200, 200))
        enqueue(hold())
        eventually(lambda: stage.started)
        [reported] = get(server, "/ready?verbose=1")[1]["workers"]
        assert (reported["worker"], reported["running"], reported["concurrency"]) == (worker.id, 1, 3)
        worker.request_stop()
        eventually(lambda: statuses(server) == (200, 503))
        assert get(server, "/ready")[1]["reasons"] == ["the worker is stopping"]
        stage.go.set()


def test_a_worker_without_its_database_is_live_and_not_ready(stage, server, monkeypatch):
    def fail(*args):
        raise OperationalError("server closed the connection")

    monkeypatch.setattr(worker_module, "FIRST_RECOVERY", 0.01)
    with healthy_worker(server):
        with monkeypatch.context() as broken:
            broken.setattr(worker_module.Claimer, "poll", fail)
            eventually(lambda: statuses(server) == (200, 503))
            assert "server closed the connection" in get(server, "/ready")[1]["reasons"][0]
        eventually(lambda: statuses(server) == (200, 200))


def test_a_worker_whose_claiming_loop_is_stuck_is_not_live(stage, server, monkeypatch):
    stuck, over = threading.Event(), threading.Event()

    def hang(*args):
        stuck.set()
        over.wait(60)
        return []

    monkeypatch.setattr(bounds, "STALL", 2.0)
    monkeypatch.setattr(claims, "claim", hang)
    enqueue(quick())
    with running_worker() as worker:
        server.report = worker.health.report
        assert stuck.wait(10)
        eventually(lambda: statuses(server) == (503, 503))
        assert "the thread 'claiming' has made no progress for" in get(server, "/live")[1]["reasons"][0]
        monkeypatch.undo()
        over.set()


def test_a_worker_with_a_thread_that_is_stuck_is_not_live(stage, server, monkeypatch):
    monkeypatch.setattr(bounds, "STALL", 5.0)
    with healthy_worker(server) as worker:
        threads = {one.heartbeat.name: one for one in worker._threads()}
        for name in ("settling", "leases", "maintenance", "scheduler"):
            with monkeypatch.context() as stuck:
                stuck.setattr(threads[name].heartbeat, "silence", lambda: 6.0)
                eventually(lambda: statuses(server) == (503, 503))
                reasons = get(server, "/live")[1]["reasons"]
                assert reasons == [f"the thread {name!r} has made no progress for 6 s"]
            eventually(lambda: statuses(server) == (200, 200))


def test_a_worker_that_has_lost_a_thread_is_not_live_and_is_lost(stage, server, monkeypatch, caplog):
    run = EngineThread._run
    monkeypatch.setattr(
        EngineThread, "_run", lambda self: None if self.heartbeat.name == "leases" else run(self)
    )
    with running_worker() as worker:
        server.report = worker.health.report
        eventually(lambda: statuses(server) == (503, 503))
        assert "the thread 'leases' has ended" in get(server, "/live")[1]["reasons"]
        eventually(lambda: worker.lost)
        eventually(lambda: worker.health.phase is Phase.STOPPED)
        assert statuses(server) == (503, 503)
    assert "cannot go on" in caplog.text


def test_a_thread_that_is_just_starting_is_not_gone(monkeypatch):
    """It has its id a moment before it counts as alive."""
    thread = EngineThread("settling", lambda heartbeat: None)
    monkeypatch.setattr(thread.thread, "_ident", 1)
    assert not thread.is_gone


def test_a_receiver_that_takes_long_is_no_connection_that_does_not_answer(settings, monkeypatch, caplog):
    settings.AYEWORK = settings.AYEWORK | {"STATEMENT_TIMEOUT": 1.0}
    monkeypatch.setattr(bounds, "ANSWER", 0.0)
    monkeypatch.setattr(bounds, "STALL", 0.5)
    inside, go = threading.Event(), threading.Event()

    def takes_long(**kwargs: object) -> None:
        inside.set()
        go.wait(PATIENCE)

    work_succeeded.connect(takes_long)
    try:
        with running_worker() as worker:
            handle = enqueue(quick())
            assert inside.wait(PATIENCE)
            eventually(lambda: worker._settler.heartbeat.silence() > 2.5)
            assert not worker.lost
            go.set()
            handle.result(timeout=PATIENCE)
    finally:
        work_succeeded.disconnect(takes_long)
    assert "has not answered the thread 'settling'" not in caplog.text


def test_other_requests_are_refused_and_an_idle_client_does_not_block_the_server(server):
    server.report = Worker().health.report
    assert get(server, "/")[0] == 404
    assert ask(server, "POST /live HTTP/1.1\r\n\r\n")[0] == 405
    assert ask(server, "\r\n\r\n")[0] == 405
    assert ask(server, "HEAD /live HTTP/1.1\r\n\r\n") == (200, {})
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))):
        server.answer()
        assert get(server, "/live")[0] == 200
    server.answer()  # nobody is there
    other = HealthServer("::1", 0)
    assert other.url.startswith("http://[::1]:")
    other.close()
