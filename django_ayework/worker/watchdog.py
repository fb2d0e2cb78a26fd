"""The watchdog: the time of attempts, threads that do not answer, and the file of the database."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from django_ayework.conf import get_settings
from django_ayework.define.context import AbortReason
from django_ayework.documentation import logged
from django_ayework.heartbeat import Heartbeat
from django_ayework.store.database import database_file
from django_ayework.store.sessions import cut
from django_ayework.worker import bounds
from django_ayework.worker.in_flight import InFlight

logger = logging.getLogger("django_ayework")


#: Seconds between two checks of the watchdog.
CHECK_EVERY = 0.25


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
    _file: str | None = field(default_factory=database_file)
    _identity: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self._file is not None:  # the process may change its directory
            self._file = os.path.abspath(self._file)
            with suppress(OSError):
                self._identity = identity_of(self._file)

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
        """Compare the file with the one that was there first."""
        try:
            identity: tuple[int, int] | None = identity_of(file)
        except FileNotFoundError:
            identity = None
        except OSError:  # its folder cannot be read at the moment
            return
        self._identity = self._identity or identity
        if identity != self._identity and not self.lost:
            self.lost = f"the database file {file} was deleted, moved or replaced"
            logger.critical(
                "The database file %s was deleted, moved or replaced, so this worker cannot go on. "
                "Start it again. %s",
                file, logged("database-file-replaced"),
            )  # fmt: skip

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
                "The database has not answered the thread %r for %.0f s; the connection is replaced. %s",
                name, silence, logged("database-silent"),
            )  # fmt: skip

    def _lose(self, why: str) -> None:
        if not self.lost:
            self.lost = why
            logger.critical(
                "%s, so this worker cannot go on. Start it again. %s",
                why.capitalize(),
                logged("thread-stuck"),
            )


def identity_of(file: str) -> tuple[int, int]:
    """Return what tells a file from another one at the same path."""
    found = os.stat(file)
    return found.st_dev, found.st_ino
