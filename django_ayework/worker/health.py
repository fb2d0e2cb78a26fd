"""The health of a worker: the watchdog over its threads, its state over HTTP, and its row in the database."""

from __future__ import annotations

import json
import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Protocol

from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from django_ayework.conf import get_settings
from django_ayework.define.context import AbortReason
from django_ayework.flow.events import report
from django_ayework.flow.readiness import require_usable_database
from django_ayework.heartbeat import Heartbeat
from django_ayework.models import WorkerProcess
from django_ayework.rules.health import ALIVE, Health, Phase, Signs, health_of, wrong_with_threads
from django_ayework.store import attempts
from django_ayework.store.clock import clock
from django_ayework.store.sessions import cut
from django_ayework.worker import bounds
from django_ayework.worker.in_flight import InFlight
from django_ayework.worker.limits import resident_bytes
from django_ayework.worker.threads import Recovery, twice

logger = logging.getLogger("django_ayework")

# --- the watchdog -----------------------------------------------------------------------------------------

#: Seconds between two checks of the watchdog.
CHECK_EVERY = 0.25


class WatchedThread(Protocol):
    """A thread that was started: its heartbeat, and whether it has ended before its time."""

    heartbeat: Heartbeat

    @property
    def is_gone(self) -> bool: ...


class Watchdog:
    """Watches the time of attempts, and the threads of the engine.

    The thread that calls :meth:`check` again and again must not wait for the database itself. A thread whose
    statement gets no answer is given a new connection: the old one is cut, so that the driver raises in that
    thread. A thread that does not come back by that is lost.
    """

    def __init__(self, in_flight: InFlight, threads: Callable[[], Iterable[WatchedThread]]) -> None:
        self.threads = threads
        self._in_flight = in_flight
        self._cut_at: dict[WatchedThread, float] = {}
        #: Which thread cannot be brought back, and why; empty while there is none.
        self.lost = ""

    def check(self) -> None:
        """Check everything once."""
        now = time.monotonic()
        for delivery in self._in_flight.all():
            if delivery.is_overtime(now):
                delivery.abort(AbortReason.TIMEOUT)
            delivery.interrupt()
        for thread in self.threads():
            self._check_thread(thread)

    def _check_thread(self, thread: WatchedThread) -> None:
        """Cut the connection of a thread that has been silent for longer than a statement may take."""
        name, silence = thread.heartbeat.name, thread.heartbeat.silence()
        timeout = get_settings().statement_timeout
        if thread.is_gone:
            self._lose(f"the thread {name!r} has ended")
        if timeout is None or silence < timeout + bounds.ANSWER or thread.heartbeat.is_in_project_code:
            self._cut_at.pop(thread, None)
            return
        if thread in self._cut_at:
            if time.monotonic() - self._cut_at[thread] > bounds.STALL:
                self._lose(f"the thread {name!r} has not come back for {silence:.0f} s")
            return
        self._cut_at[thread] = time.monotonic()
        if cut(thread.heartbeat.socket):
            logger.error(
                "The database has not answered the thread %r for %.0f s; the connection is replaced.",
                name, silence,
            )  # fmt: skip

    def _lose(self, why: str) -> None:
        if not self.lost:
            self.lost = why
            logger.critical("%s, so this worker cannot go on. Start it again.", why.capitalize())


# --- the state of a worker --------------------------------------------------------------------------------

HealthReport = tuple[Health, Sequence[Signs]]


class WorkerHealth:
    """The phase of one worker, its threads, and the last error of its claiming loop."""

    def __init__(self, worker_id: str, concurrency: int, in_flight: InFlight, watchdog: Watchdog) -> None:
        self.phase = Phase.STARTING
        #: Called whenever the phase has changed, or a thread is lost.
        self.listeners: list[Callable[[], object]] = []
        self._worker_id = worker_id
        self._concurrency = concurrency
        self._in_flight = in_flight
        self._watchdog = watchdog
        self._trouble = ""

    def enter(self, phase: Phase) -> None:
        """Note that a phase of the worker's life begins."""
        if phase is not self.phase:
            self.phase = phase
            self.notify()

    def notify(self) -> None:
        """Call the listeners."""
        for listener in self.listeners:
            listener()

    def note(self, error: BaseException | None) -> None:
        """Note the error that the last turn of the claiming loop met, or None."""
        self._trouble = "" if error is None else f"{type(error).__name__}: {error}".strip()

    def signs(self) -> Signs:
        """Return how things stand; safe in any thread, and without a query."""
        is_watched = self.phase in ALIVE or self._watchdog.lost
        threads = list(self._watchdog.threads()) if is_watched else []
        return Signs(
            worker=self._worker_id,
            pid=os.getpid(),
            phase=self.phase,
            silent={each.heartbeat.name: each.heartbeat.silence() for each in threads if not each.is_gone},
            trouble=self._trouble,
            dead=tuple(each.heartbeat.name for each in threads if each.is_gone),
            running=self._in_flight.active,
            concurrency=self._concurrency,
            attempts=self._in_flight.finished,
            memory=resident_bytes(),
        )

    def report(self) -> HealthReport:
        """Return the health of this worker, and its signs."""
        signs = self.signs()
        return health_of(signs, bounds.STALL), [signs]

    def stuck_threads(self) -> str:
        """Say which threads are stuck."""
        return "; ".join(wrong_with_threads(self.signs(), bounds.STALL))


# --- over HTTP --------------------------------------------------------------------------------------------

#: Seconds for one request and its response. A slower client is left alone: a supervisor answers between its
#: other tasks.
QUICK = 0.5
LONGEST_REQUEST = 65_536
PHRASES = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


class HealthServer:
    """A small HTTP server for ``/live`` and ``/ready``; it answers one request per call of :meth:`answer`.

    It has no thread of its own, so that a process that forks can have one too.
    """

    def __init__(self, host: str, port: int, report: Callable[[], HealthReport] | None = None) -> None:
        self.report = report
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=16)
        self._socket.setblocking(False)

    @property
    def url(self) -> str:
        """The address at which it listens."""
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._socket.fileno()

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()

    def answer(self) -> None:
        """Answer the first client that waits."""
        with suppress(OSError):  # it has gone away, or is too slow
            client, _ = self._socket.accept()
            with client:
                client.settimeout(QUICK)
                client.sendall(self._response_to(client.recv(LONGEST_REQUEST)))

    def serve_in_thread(self) -> None:
        """Answer in a thread of its own, as long as the process lives."""

        def serve() -> None:
            while True:
                select.select([self], [], [])
                self.answer()

        threading.Thread(target=serve, name="ayework-health", daemon=True).start()

    def _response_to(self, request: bytes) -> bytes:
        method, path, *_ = [*request.decode("latin-1").split(None, 2), "", ""]
        status, body = self._answer_to(method, path.partition("?")[0])
        payload = json.dumps(body).encode()
        head = (
            f"HTTP/1.1 {status} {PHRASES[status]}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(payload)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + (b"" if method == "HEAD" else payload)

    def _answer_to(self, method: str, path: str) -> tuple[int, dict[str, object]]:
        if method not in ("GET", "HEAD"):
            return 405, {"error": f"expected GET, got: {method!r}."}
        if path not in ("/live", "/ready") or self.report is None:
            return 404, {"error": f"expected /live or /ready, got: {path!r}."}
        health, signs = self.report()
        is_well = health.live if path == "/live" else health.ready
        return 200 if is_well else 503, {**asdict(health), "workers": [asdict(one) for one in signs]}


# --- in the database --------------------------------------------------------------------------------------

#: Seconds to wait for a database that is away when the worker starts, growing to the second figure.
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0


class WorkerRegistration:
    """Writes the row of one worker: when it starts, while it lives, and when it stops."""

    def __init__(
        self,
        worker_id: str,
        name: str,
        queues: tuple[str, ...],
        concurrency: int,
        trouble: Callable[[], str] = str,
    ) -> None:
        self.worker_id = worker_id
        self.name = name
        self.queues = queues
        self.concurrency = concurrency
        self._trouble = trouble

    def register_once_ready(
        self, stopping: threading.Event, on_try: Callable[[Exception | None], object]
    ) -> None:
        """Register once the database answers; give up when the worker is asked to stop.

        Raises ImproperlyConfigured for a database on which workers cannot run.
        """
        recovery = Recovery(FIRST_PAUSE, LONGEST_PAUSE)
        while not stopping.is_set():
            try:
                require_usable_database()
                clock.synchronise()
                self.register()
                on_try(None)
                return
            except ImproperlyConfigured:
                connections.close_all()
                raise
            except Exception as error:
                report(error, "queue", "the worker waits for the database", brief=recovery.goes_on)
                connections.close_all()
                on_try(error)
            stopping.wait(recovery.fail())

    def register(self, running: int = 0) -> None:
        """Insert the row."""
        now = clock.now()
        process = WorkerProcess(
            id=self.worker_id,
            name=self.name,
            host=socket.gethostname(),
            pid=os.getpid(),
            queues=",".join(self.queues),
            concurrency=self.concurrency,
            running=running,
            started_at=now,
            seen_at=now,
        )
        attempts.register(process)

    def beat(self, running: int) -> None:
        """Write that the worker is alive; insert the row again if it was pruned after a long silence."""
        trouble = self._trouble()[:500]  # the length of its column
        if not attempts.heartbeat(self.worker_id, clock.now(), running, trouble):
            self.register(running)

    def sign_off(self, left: int) -> None:
        """Note the end, if the database is there; log how many works are left to their leases."""
        try:
            twice(lambda: attempts.stopped(self.worker_id, clock.now()))
        except Exception as error:
            report(error, "queue", "the worker could not note that it stopped")
        connections.close_all()
        if left:
            logger.error(
                "Worker %s leaves %d works to their leases, as it stopped without the database: "
                "they run again once those have lapsed.", self.worker_id, left,
            )  # fmt: skip
        logger.info("Worker %s stopped.", self.worker_id)
