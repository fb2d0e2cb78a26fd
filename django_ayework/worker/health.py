"""How a worker is, told over HTTP, in its row, and to hooks."""

from __future__ import annotations

import json
import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict

from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from django_ayework.flow.events import backlog_policy, report
from django_ayework.flow.readiness import require_usable_database
from django_ayework.models import WorkerProcess
from django_ayework.rules.health import ALIVE, BacklogInfo, Episode, Health, Phase, Signs, health_of
from django_ayework.store import attempts
from django_ayework.store.clock import clock
from django_ayework.store.lanes import depths_of
from django_ayework.worker import bounds
from django_ayework.worker.in_flight import InFlight
from django_ayework.worker.threads import Recovery, resident_bytes, twice
from django_ayework.worker.watchdog import Watchdog

# --- vitals ---
# What a worker shows of itself: its phase, its threads, and what troubles it.


class Vitals:
    """The signs of life of one worker."""

    def __init__(self, worker_id: str, concurrency: int, in_flight: InFlight, watchdog: Watchdog) -> None:
        self.phase = Phase.STARTING
        #: Called whenever the phase has changed.
        self.listeners: list[Callable[[], object]] = []
        self._worker_id = worker_id
        self._concurrency = concurrency
        self._in_flight = in_flight
        self._watchdog = watchdog
        self._trouble = ""

    def enter(self, phase: Phase) -> None:
        """Note that a part of the worker's life begins."""
        if phase is not self.phase:
            self.phase = phase
            self.notify()

    def notify(self) -> None:
        """Call the listeners: something else has changed that they should look at."""
        for listener in self.listeners:
            listener()

    def note(self, trouble: BaseException | None) -> None:
        """Note what the claiming loop met in its last turn, if it was an error."""
        self._trouble = "" if trouble is None else f"{type(trouble).__name__}: {trouble}".strip()

    def signs(self) -> Signs:
        """Return how things stand; safe in any thread, and without a question to the database."""
        threads = self._watchdog.signs() if self.phase in ALIVE or self._watchdog.lost else []
        return Signs(
            worker=self._worker_id,
            pid=os.getpid(),
            phase=self.phase,
            silent={each.name: each.silence for each in threads if each.silence is not None},
            trouble=self._trouble,
            dead=tuple(each.name for each in threads if each.silence is None),
            running=self._in_flight.active,
            concurrency=self._concurrency,
            attempts=self._in_flight.finished,
            memory=resident_bytes(),
        )


# --- health ---
# A small HTTP server that tells how a worker is: ``/live`` and ``/ready``.

#: Seconds for one question and its answer. Whoever is slower is left alone: a supervisor answers between
#: its other tasks.
QUICK = 0.5
LONGEST_QUESTION = 65_536
PHRASES = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}

Report = tuple[Health, Sequence[Signs]]


class HealthServer:
    """Listens, and answers one question at a time whenever it is told that there is one.

    It has no thread of its own, so that a process that forks can have one too.
    """

    def __init__(self, host: str, port: int, ask: Callable[[], Report] | None = None) -> None:
        self.ask = ask
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=16)
        self._socket.setblocking(False)

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def fileno(self) -> int:
        """Return what to wait for."""
        return self._socket.fileno()

    def close(self) -> None:
        """Listen no more."""
        self._socket.close()

    def answer(self) -> None:
        """Answer whoever is first in line."""
        with suppress(OSError):  # it has gone away, or dawdles
            client, _ = self._socket.accept()
            with client:
                client.settimeout(QUICK)
                client.sendall(self.response_to(client.recv(LONGEST_QUESTION)))

    def response_to(self, question: bytes) -> bytes:
        """Return the whole response to a request."""
        method, path, *_ = [*question.decode("latin-1").split(None, 2), "", ""]
        status, body = self.answer_to(method, path.partition("?")[0])
        payload = json.dumps(body).encode()
        head = (
            f"HTTP/1.1 {status} {PHRASES[status]}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(payload)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + (b"" if method == "HEAD" else payload)

    def answer_to(self, method: str, path: str) -> tuple[int, dict[str, object]]:
        """Return the status and the body."""
        if method not in ("GET", "HEAD"):
            return 405, {"error": f"expected GET, got: {method!r}."}
        if path not in ("/live", "/ready") or self.ask is None:
            return 404, {"error": f"expected /live or /ready, got: {path!r}."}
        health, signs = self.ask()
        is_well = health.live if path == "/live" else health.ready
        return 200 if is_well else 503, {**asdict(health), "workers": [asdict(one) for one in signs]}


def report_on(vitals: Vitals) -> Report:
    """Return how one worker of this process is."""
    signs = vitals.signs()
    return health_of(signs, bounds.STALL), [signs]


def serve_in_thread(server: HealthServer) -> threading.Thread:
    """Let a server answer in a thread of its own, as long as the process lives."""

    def serve() -> None:
        while True:
            select.select([server], [], [])
            server.answer()

    thread = threading.Thread(target=serve, name="ayework-health", daemon=True)
    thread.start()
    return thread


# --- lag ---
# Lag: the hook ``ON_BACKLOG`` is told once a worker has been behind for too long.


class Lag:
    """Follows the claiming loop of one worker: it is behind while works could fill more room than it has."""

    def __init__(self, seconds: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._episode: Episode | None = None

    def note(self, behind: bool, active: int, serves: Callable[[str], bool]) -> None:
        """Note one turn of the loop. A turn that had room for everything it found ends the episode."""
        policy = backlog_policy() if behind else None
        if policy is None:
            self._episode = None
            return
        now = self._seconds()
        self._episode = self._episode or Episode(now, policy.after, policy.every)
        behind_for = self._episode.reported(now)
        if behind_for is None:
            return
        waiting = queued(serves)
        if waiting == 0:  # the slots are full, and that is all there is to do
            self._episode = None
            return
        policy.tell(BacklogInfo(active=active, queued=waiting, behind_for=behind_for))


def queued(serves: Callable[[str], bool]) -> int | None:
    """Count the works that are due in the queues served; None when the database cannot say."""
    try:
        return sum(depth.works for depth in depths_of("pending") if serves(depth.queue))
    except Exception as error:
        report(error, "queue", "the works that are due could not be counted")
        return None


# --- presence ---
# The row by which everybody else knows of a worker.

logger = logging.getLogger("django_ayework")

#: Seconds to wait for a database that is away when the worker starts, growing to the second figure.
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0


class Presence:
    """Writes the row of one worker: when it starts, while it lives, and when it stops."""

    def __init__(self, worker_id: str, name: str, queues: tuple[str, ...], concurrency: int) -> None:
        self.worker_id = worker_id
        self.name = name
        self.queues = queues
        self.concurrency = concurrency
        #: Says which threads of the worker are stuck.
        self.troubles: Callable[[], list[str]] = list

    def announce(self, stopping: threading.Event, on_try: Callable[[Exception | None], object]) -> None:
        """Register once the database answers; give up when asked to stop.

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

    @property
    def trouble(self) -> str:
        """Which threads are stuck, as far as that fits its column."""
        return "; ".join(self.troubles())[:500]

    def beat(self, running: int) -> None:
        """Tell that the worker is alive; one that was silent for so long that it was forgotten is back."""
        if not attempts.heartbeat(self.worker_id, clock.now(), running, self.trouble):
            self.register(running)

    def leave(self, left: int) -> None:
        """Note the end, if the database is there to hear it; say how many works are left to their leases."""
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
