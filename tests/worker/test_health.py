"""The health of a worker, asked for over HTTP."""

import json
import logging
import socket
import threading
from contextlib import ExitStack, contextmanager

import pytest
from django.db import OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from django_ayework import enqueue, work
from django_ayework.ports.kv import LocalStore
from django_ayework.ports.pubsub.base import Listening
from django_ayework.rules.health import Phase
from django_ayework.signals import work_succeeded
from django_ayework.store import claims
from django_ayework.store.notifications import Unsupported
from django_ayework.testing import running_worker
from django_ayework.worker import bounds, threads
from django_ayework.worker import worker as worker_module
from django_ayework.worker.dispatch import Dispatcher
from django_ayework.worker.health import HealthServer
from django_ayework.worker.maintenance import MaintenanceThread
from django_ayework.worker.shutdown import ends_in_time
from django_ayework.worker.threads import EngineThread
from django_ayework.worker.worker import Worker
from tests.attempts.conftest import connected
from tests.marks import each_database
from tests.processes import PATIENCE, eventually
from tests.worker.works import counted, hold, quick

pytestmark = [pytest.mark.usefixtures("quick_polls"), pytest.mark.vendors("sqlite")]
HEALTHY, NOT_READY, NOT_LIVE = (200, 200), (200, 503), (503, 503)


class Asked(HealthServer):
    """A server that answers in the thread that asks."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1", 0)

    def connected(self) -> socket.socket:
        host, port = self.url.removeprefix("http://").split(":")
        return socket.create_connection((host, int(port)))

    def ask(self, question: str) -> tuple[int, dict]:
        """Send a request; return the status and the body."""
        with self.connected() as client:
            client.sendall(question.encode())
            self.answer()
            answer = b"".join(iter(lambda: client.recv(65_536), b""))
        head, _, body = answer.decode().partition("\r\n\r\n")
        return int(head.split()[1]), json.loads(body) if body else {}

    def get(self, path: str) -> tuple[int, dict]:
        return self.ask(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")

    def reasons(self, path: str) -> list[str]:
        return self.get(path)[1]["reasons"]

    def comes_to_say(self, statuses: tuple[int, int]) -> None:
        """Wait for these statuses of /live and /ready."""
        eventually(lambda: (self.get("/live")[0], self.get("/ready")[0]) == statuses)

    @contextmanager
    def running_worker(self):
        """Run a worker whose health is reported."""
        with running_worker() as worker:
            self.report = worker.health.report
            yield worker


@pytest.fixture
def server():
    server = Asked()
    yield server
    server.close()


@each_database
def test_a_worker_is_ready_from_its_registration_until_it_stops(stage, server):
    worker = Worker(concurrency=3)
    server.report = worker.health.report
    assert server.reasons("/ready") == ["the worker is starting"]
    with worker:
        server.comes_to_say(HEALTHY)
        enqueue(hold())
        eventually(lambda: stage.started)
        [reported] = server.get("/ready?verbose=1")[1]["workers"]
        assert (reported["worker"], reported["running"], reported["concurrency"]) == (worker.id, 1, 3)
        worker.request_stop()
        server.comes_to_say(NOT_READY)
        assert server.reasons("/ready") == ["the worker is stopping"]
        stage.go.set()


@each_database
def test_a_worker_without_its_database_is_live_and_not_ready(server, monkeypatch):
    def fail(*args):
        raise OperationalError("server closed the connection")

    monkeypatch.setattr(worker_module, "FIRST_RECOVERY", 0.01)
    with server.running_worker():
        server.comes_to_say(HEALTHY)
        with monkeypatch.context() as broken:
            broken.setattr(worker_module.Claimer, "poll", fail)
            server.comes_to_say(NOT_READY)
            assert "server closed the connection" in server.reasons("/ready")[0]
        server.comes_to_say(HEALTHY)


@contextmanager
def read_only():
    """Let no connection that is opened meanwhile write."""

    def refuse_writes(sender: object, connection: BaseDatabaseWrapper, **kwargs: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA query_only = 1")

    with connected(refuse_writes, connection_created):
        yield


def test_an_idle_worker_whose_heartbeat_is_refused_is_not_ready(server):
    with server.running_worker() as worker:
        server.comes_to_say(HEALTHY)
        for duty in worker._maintenance._duties:
            if duty.act == worker._maintenance.beat:
                duty.every = duty.due_at = 0.0
        with read_only():
            server.comes_to_say(NOT_READY)
            assert "OperationalError: attempt to write a readonly database" in server.reasons("/ready")[0]
        server.comes_to_say(HEALTHY)


def test_a_worker_whose_claiming_loop_is_stuck_is_not_live(server, monkeypatch):
    stuck, over = threading.Event(), threading.Event()

    def hang(*args):
        stuck.set()
        over.wait(60)
        return []

    monkeypatch.setattr(bounds, "STALL", 2.0)
    monkeypatch.setattr(claims, "claim", hang)
    enqueue(quick())
    with server.running_worker():
        assert stuck.wait(10)
        server.comes_to_say(NOT_LIVE)
        assert "the thread 'claiming' has made no progress for" in server.reasons("/live")[0]
        monkeypatch.undo()
        over.set()


def test_a_worker_with_a_thread_that_is_stuck_is_not_live(server, monkeypatch):
    monkeypatch.setattr(bounds, "STALL", 5.0)
    with server.running_worker() as worker:
        server.comes_to_say(HEALTHY)
        threads = {one.heartbeat.name: one for one in worker._threads()}
        for name in ("settling", "leases", "maintenance", "scheduler"):
            with monkeypatch.context() as stuck:
                stuck.setattr(threads[name].heartbeat, "silence", lambda: 6.0)
                server.comes_to_say(NOT_LIVE)
                assert server.reasons("/live") == [f"the thread {name!r} has made no progress for 6 s"]
            server.comes_to_say(HEALTHY)


def test_the_place_of_a_stuck_thread_is_logged_once(server, settings, monkeypatch, caplog):
    over = threading.Event()

    def hangs_for_a_while(info):
        over.wait(60)

    monkeypatch.setattr(bounds, "STALL", 0.5)
    settings.AYEWORK = {**settings.AYEWORK, "BACKPRESSURE": hangs_for_a_while}
    with server.running_worker() as worker:
        eventually(lambda: "in hangs_for_a_while" in caplog.text)
        for _ in range(3):
            worker._watchdog.check()
        over.set()
    assert caplog.text.count("The thread 'claiming' has made no progress for") == 1


def test_a_worker_that_cannot_start_a_thread_is_lost(monkeypatch, caplog):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(MaintenanceThread, "start", refuse)
    worker = Worker()
    with pytest.raises(RuntimeError, match="can't start"):
        worker.run()
    assert worker.lost == "the worker has failed: RuntimeError: can't start new thread"
    assert "The worker has failed: RuntimeError: can't start new thread, so this worker" in caplog.text


@pytest.fixture
def hanging_log(monkeypatch):
    """Errors are not written before the event is set; the result is the event."""
    over = threading.Event()

    class Hanging(logging.Handler):
        def emit(self, record):
            over.wait(60)

    monkeypatch.setattr(threads, "LOG_PATIENCE", 0.01)
    handler = Hanging(logging.ERROR)
    logging.getLogger("django_ayework").addHandler(handler)
    yield over
    over.set()
    logging.getLogger("django_ayework").removeHandler(handler)


def test_a_worker_is_lost_while_the_log_hangs(hanging_log, monkeypatch):
    run, told = EngineThread._run, []
    monkeypatch.setattr(
        EngineThread, "_run", lambda self: None if self.heartbeat.name == "leases" else run(self)
    )
    with Worker() as worker:
        worker.health.listeners.append(lambda: told.append(worker.lost))
        eventually(lambda: any(told))
        hanging_log.set()


def test_a_worker_that_does_not_stop_is_left_while_the_log_hangs(hanging_log, settings, monkeypatch):
    settings.AYEWORK = {**settings.AYEWORK, "SHUTDOWN_GRACE": 0}
    monkeypatch.setattr(bounds, "FAREWELL", 0.01)
    thread = threading.Thread(target=hanging_log.wait, args=[60])
    thread.start()
    assert not ends_in_time(thread, "one")
    hanging_log.set()
    thread.join()


def test_a_claiming_loop_that_an_error_has_ended_begins_again(monkeypatch, caplog):
    hand_out_due = Dispatcher.hand_out_due
    errors = [RuntimeError("no thread for a load")]

    def fail_once(self):
        if errors:
            raise errors.pop()
        return hand_out_due(self)

    monkeypatch.setattr(Dispatcher, "hand_out_due", fail_once)
    with running_worker() as worker:
        eventually(lambda: "begins again" in caplog.text)
        assert enqueue(quick(number=1)).result(timeout=20) == 1
    assert worker.lost == ""


def test_a_worker_that_has_lost_a_thread_is_not_live_and_is_lost(server, monkeypatch, caplog):
    run = EngineThread._run
    monkeypatch.setattr(
        EngineThread, "_run", lambda self: None if self.heartbeat.name == "leases" else run(self)
    )
    with server.running_worker() as worker:
        server.comes_to_say(NOT_LIVE)
        assert "the thread 'leases' has ended" in server.reasons("/live")
        eventually(lambda: worker.lost)
        eventually(lambda: worker.health.phase is Phase.STOPPED)
        assert (server.get("/live")[0], server.get("/ready")[0]) == NOT_LIVE
    assert "cannot go on" in caplog.text


def test_a_thread_that_is_just_starting_is_not_gone(monkeypatch):
    """It has its id a moment before it counts as alive."""
    thread = EngineThread("settling", lambda heartbeat: None)
    monkeypatch.setattr(thread.thread, "_ident", 1)
    assert not thread.is_gone


def test_a_listener_that_is_just_starting_is_not_gone(monkeypatch):
    class Listener(Listening):
        def open_receiver(self):
            raise Unsupported("it is never connected")

    listener, start, answers = Listener(), threading.Thread.start, list[bool]()

    def start_slowly(thread) -> None:
        monkeypatch.setattr(thread, "_ident", 1, raising=False)
        asks = threading.Thread(target=lambda: answers.append(listener.is_gone))
        start(asks)
        asks.join(0.2)
        start(thread)

    with monkeypatch.context() as slow:
        slow.setattr(threading.Thread, "start", start_slowly)
        listener.subscribe("channel", lambda message: None)
    eventually(lambda: answers)
    listener.close()
    assert answers == [False]


def test_a_receiver_that_takes_long_is_no_connection_that_does_not_answer(settings, monkeypatch, caplog):
    settings.AYEWORK = settings.AYEWORK | {"STATEMENT_TIMEOUT": 1.0}
    monkeypatch.setattr(bounds, "ANSWER", 0.0)
    monkeypatch.setattr(bounds, "STALL", 0.5)
    inside, go = threading.Event(), threading.Event()

    def takes_long(**kwargs: object) -> None:
        inside.set()
        go.wait(PATIENCE)

    with connected(takes_long, work_succeeded), running_worker() as worker:
        handle = enqueue(quick())
        assert inside.wait(PATIENCE)
        eventually(lambda: worker._settler.heartbeat.silence() > 2.5)
        assert not worker.lost
        go.set()
        handle.result(timeout=PATIENCE)
    assert "has not answered the thread 'settling'" not in caplog.text


def test_the_place_of_an_async_handler_that_blocks_the_event_loop_is_logged(monkeypatch, caplog):
    over = threading.Event()

    @work(name="worker.blocks_the_loop")
    async def blocks_the_loop() -> None:
        over.wait(PATIENCE)

    monkeypatch.setattr(bounds, "STALL", 0.5)
    with running_worker():
        handle = enqueue(blocks_the_loop())
        eventually(lambda: "The thread 'event loop' has made no progress" in caplog.text)
        over.set()
        handle.result(timeout=20)
    assert "over.wait(PATIENCE)" in caplog.text


class Hanging(LocalStore):
    """A Store whose server does not answer until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()

    def get(self, key: str) -> str | None:
        self.go.wait(PATIENCE)
        return super().get(key)


def test_a_worker_says_that_a_doer_waits_for_a_store_of_the_project_and_runs_other_works(
    settings, monkeypatch, caplog
):
    store = Hanging()
    settings.AYEWORK = settings.AYEWORK | {"STORE": store, "STATEMENT_TIMEOUT": 1.0}
    monkeypatch.setattr(bounds, "ANSWER", 0.0)
    monkeypatch.setattr(bounds, "STALL", 0.5)
    with running_worker() as worker:
        handle = enqueue(counted(number=2))
        eventually(lambda: "The thread 'doer' has made no progress" in caplog.text)
        assert "self.go.wait(PATIENCE)" in caplog.text
        doers = [each.heartbeat for each in worker._threads() if each.heartbeat.name == "doer"]
        eventually(lambda: max(heartbeat.silence() for heartbeat in doers) > 2.5)  # others of them are idle
        assert enqueue(quick(number=1)).result(timeout=20) == 1
        assert not worker.lost
        store.go.set()
        assert handle.result(timeout=20) == 2


def test_other_requests_are_refused_and_silent_clients_hold_up_no_others(server):
    server.report = Worker().health.report
    assert server.get("/")[0] == 404
    assert server.ask("POST /live HTTP/1.1\r\n\r\n")[0] == 405
    assert server.ask("\r\n\r\n")[0] == 405
    assert server.ask("HEAD /live HTTP/1.1\r\n\r\n") == (200, {})
    with ExitStack() as silent:
        for _ in range(20):
            silent.enter_context(server.connected())
        assert server.get("/live")[0] == 200  # by the first answer
    server.answer()  # nobody is there
    other = HealthServer("::1", 0)
    assert other.url.startswith("http://[::1]:")
    other.close()
