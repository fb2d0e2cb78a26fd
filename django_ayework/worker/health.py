"""The health of a worker: its watchdog, its state over HTTP, and its row in the database.

The watchdog looks after the time of attempts, threads that do not answer, and the file of the database.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Protocol

from django.core.exceptions import ImproperlyConfigured
from django.db import Error
from django.utils.text import capfirst

from django_ayework.compat import frames_of_thread
from django_ayework.conf import get_settings
from django_ayework.define.context import AbortReason
from django_ayework.documentation import logged
from django_ayework.flow.hooks import report
from django_ayework.flow.startup_checks import project_version, require_usable_database
from django_ayework.heartbeat import Heartbeat
from django_ayework.logs import logger
from django_ayework.models import WorkerProcess
from django_ayework.rules.formatting import error_text
from django_ayework.rules.health import ALIVE, Health, Phase, Signs, health_of, wrong_with_threads
from django_ayework.store import processes
from django_ayework.store.connections import close_all_connections
from django_ayework.store.database import answers, clock, is_contention, keep_database_file
from django_ayework.store.sessions import cut
from django_ayework.worker import bounds
from django_ayework.worker.admission import resident_bytes
from django_ayework.worker.http import HttpServer, Response, json_response
from django_ayework.worker.in_flight import InFlight
from django_ayework.worker.threads import Recovery, log_in_time, twice


class WatchedThread(Protocol):
    """A thread that was started: its heartbeat, and whether it has ended before its time."""

    heartbeat: Heartbeat

    @property
    def is_gone(self) -> bool: ...


@dataclass(eq=False)
class Watchdog:
    """Watches the time of attempts, the threads of the engine, and the file of an SQLite database.

    The thread that calls :meth:`check` again and again must not wait for the database itself. A thread whose
    statement gets no answer is given a new connection: the old one is cut, so that the driver raises in that
    thread. A thread that does not come back by that is lost. So is a worker whose file was replaced: its
    connections keep the old file open, in which nobody enqueues works any more.
    """

    in_flight: InFlight
    threads: Callable[[], Iterable[WatchedThread]]
    #: Why the worker cannot go on; empty while it can.
    lost: str = ""
    _cut_at: dict[WatchedThread, float] = field(default_factory=dict)
    #: The threads that are stuck, as far as that was logged.
    _stuck: set[WatchedThread] = field(default_factory=set)
    _file: str | None = field(default_factory=keep_database_file)
    _identity: tuple[int, int] | None = None

    def check(self) -> None:
        """Check everything once."""
        now = time.monotonic()
        for delivery in self.in_flight.all():
            if delivery.is_overtime(now):
                delivery.abort(AbortReason.TIMEOUT)
            delivery.interrupt()
        for thread in self.threads():
            self._check_thread(thread)
        if self._file is not None:
            self._check_file(self._file)

    def _check_file(self, file: str) -> None:
        """Compare the file with the one that was there at the first check."""
        try:
            found = os.stat(file)
            identity: tuple[int, int] | None = (found.st_dev, found.st_ino)
        except FileNotFoundError:
            identity = None
        except OSError:  # its folder cannot be read at the moment
            return
        self._identity = self._identity or identity
        if identity != self._identity and not self.lost:
            self.lost = f"the database file {file} was deleted, moved or replaced"
            log_in_time(lambda: logger.critical(
                "The database file %s was deleted, moved or replaced, so this worker cannot go on. "
                "Start it again. %s",
                file, logged("database-file-replaced"),
            ))  # fmt: skip

    def _check_thread(self, thread: WatchedThread) -> None:
        """Cut the connection of a thread that has been silent for longer than a statement may take."""
        name, silence = thread.heartbeat.name, thread.heartbeat.silence()
        timeout = get_settings().statement_timeout
        if thread.is_gone:
            self.lose(f"the thread {name!r} has ended")
        elif silence <= bounds.STALL:
            self._stuck.discard(thread)
        elif thread not in self._stuck:
            self._stuck.add(thread)
            place = position_of(thread.heartbeat.thread)
            log_in_time(lambda: logger.error(
                "The thread %r has made no progress for %.0f s. It is at:\n%s\n%s",
                name, silence, place, logged("thread-silent"),
            ))  # fmt: skip
        if timeout is None or silence < timeout + bounds.ANSWER or thread.heartbeat.is_in_project_code:
            self._cut_at.pop(thread, None)
            return
        if thread in self._cut_at:
            if time.monotonic() - self._cut_at[thread] > bounds.STALL:
                self.lose(f"the thread {name!r} has not come back for {silence:.0f} s")
            return
        self._cut_at[thread] = time.monotonic()
        if cut(thread.heartbeat.socket):
            log_in_time(lambda: logger.error(
                "The database has not answered the thread %r for %.0f s; the connection is replaced. %s",
                name, silence, logged("database-silent"),
            ))  # fmt: skip

    def lose(self, why: str, error: BaseException | None = None) -> None:
        """Note why the worker cannot go on, and log it."""
        if not self.lost:
            self.lost = why
            log_in_time(lambda: logger.critical(
                "%s, so this worker cannot go on. Start it again. %s",
                capfirst(why), logged("thread-stuck"), exc_info=error,
            ))  # fmt: skip


def position_of(thread: int | None) -> str:
    """Return where a thread is, as a traceback shows it."""
    frames = frames_of_thread(thread) if thread is not None else []
    places = traceback.StackSummary.extract((frame, frame.f_lineno) for frame in reversed(frames))
    return "".join(places.format()).rstrip()


HealthReport = tuple[Health, Sequence[Signs]]


@dataclass(eq=False)
class WorkerHealth:
    """The phase of one worker, its threads, and the last errors of its claiming loop and its heartbeat."""

    worker_id: str
    concurrency: int
    watchdog: Watchdog
    phase: Phase = Phase.STARTING
    #: Called whenever the phase has changed, or a thread is lost.
    listeners: list[Callable[[], object]] = field(default_factory=list)
    _trouble: str = ""
    _heartbeat_trouble: str = ""

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
        self._trouble = "" if error is None else error_text(error)

    def note_heartbeat(self, error: Exception | None) -> None:
        """Note the error with which the database refused the last heartbeat, or None.

        An idle worker writes little else, so nothing else tells that the database can only be read.
        """
        self._heartbeat_trouble = "" if error is None else error_text(error)

    def signs(self) -> Signs:
        """Return how things stand; safe in any thread, and without a query."""
        is_watched = self.phase in ALIVE or self.watchdog.lost
        threads = list(self.watchdog.threads()) if is_watched else []
        return Signs(
            worker=self.worker_id,
            pid=os.getpid(),
            phase=self.phase,
            silent={each.heartbeat.name: each.heartbeat.silence() for each in threads if not each.is_gone},
            trouble=self._trouble or self._heartbeat_trouble,
            dead=tuple(each.heartbeat.name for each in threads if each.is_gone),
            running=self.watchdog.in_flight.active,
            concurrency=self.concurrency,
            attempts=self.watchdog.in_flight.finished,
            memory=resident_bytes(),
        )

    def report(self) -> HealthReport:
        """Return the health of this worker, and its signs."""
        signs = self.signs()
        return health_of(signs, bounds.STALL), [signs]

    def stuck_threads(self) -> str:
        """Say which threads are stuck."""
        return "; ".join(wrong_with_threads(self.signs(), bounds.STALL))


class HealthServer(HttpServer):
    """Answers ``/live`` and ``/ready``."""

    name = "health"
    paths = ("/live", "/ready")
    #: Reports the health; None while there is nobody to ask.
    report: Callable[[], HealthReport] | None = None

    def respond(self, path: str) -> Response | None:
        """Return the health; None while there is nobody to ask."""
        if self.report is None:
            return None
        health, signs = self.report()
        is_well = health.live if path == "/live" else health.ready
        return json_response(
            200 if is_well else 503, {**asdict(health), "workers": [asdict(one) for one in signs]}
        )


#: Seconds to wait for a database that is away when the worker starts, growing up to LONGEST_PAUSE.
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0


@dataclass(eq=False)
class WorkerRegistration:
    """Writes the row of one worker: when it starts, while it lives, and when it stops."""

    worker_id: str
    name: str
    queues: tuple[str, ...]
    concurrency: int
    trouble: Callable[[], str] = str
    #: Whether the worker obeys a command to claim nothing.
    quiet: bool = False
    #: Called with the error with which the database refused a heartbeat, or with None.
    on_beat: Callable[[Exception | None], object] = lambda error: None

    def register_once_ready(
        self, stopping: threading.Event, on_try: Callable[[Exception | None], object]
    ) -> bool:
        """Register once the database answers; return False if the worker is asked to stop before that.

        Raises ImproperlyConfigured for a database on which workers cannot run.
        """
        recovery = Recovery(FIRST_PAUSE, LONGEST_PAUSE)
        while not stopping.is_set():
            try:
                require_usable_database()
                clock.synchronise()
                self.beat(0)  # a commit that got no answer may have inserted the row
                on_try(None)
                return True
            except ImproperlyConfigured:
                close_all_connections()
                raise
            except Exception as error:
                report(error, "queue", "the worker waits for the database", brief=recovery.goes_on)
                close_all_connections()
                on_try(error)
            stopping.wait(recovery.fail())
        return False

    def beat(self, running: int) -> None:
        """Write that the worker is alive, and tell whether the database refuses that.

        A lock or a lost connection is no refusal: it may be over long before the next heartbeat.
        """
        try:
            self._write(running)
        except Error as error:
            if not is_contention(error) and answers():
                self.on_beat(error)
            raise
        self.on_beat(None)

    def _write(self, running: int) -> None:
        """Write the row; insert it at the start, and if it was pruned in a silence."""
        now, trouble = clock.now(), self.trouble()[:500]  # the length of its column
        if processes.note_heartbeat(self.worker_id, now, running, trouble):
            return
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
            quiet=self.quiet,
            version=project_version(),
        )
        processes.register_process(process)

    def sign_off(self, left: int) -> None:
        """Note the end, if the database is there; log how many works are left to their leases."""
        try:
            twice(lambda: processes.note_stopped(self.worker_id, clock.now()))
        except Exception as error:
            report(error, "queue", "the worker could not note that it stopped")
        close_all_connections()
        if left:
            logger.error(
                "Worker %s leaves %d works to their leases, as it could not settle or release them: "
                "they run again once those have lapsed. %s",
                self.worker_id, left, logged("left-to-leases"),
            )  # fmt: skip
        logger.info("Worker %s stopped.", self.worker_id)
