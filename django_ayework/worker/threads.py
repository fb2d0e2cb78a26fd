"""The engine's threads: how they start, loop, rest, recover from errors, and stop.

Each has a heartbeat by which the watchdog knows it, and a database session of the engine's own.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from django.db import InterfaceError, OperationalError

from django_ayework.flow.hooks import report
from django_ayework.heartbeat import Heartbeat
from django_ayework.store.connections import close_all_connections, tidy_connections
from django_ayework.store.database import connection
from django_ayework.store.sessions import engine_session
from django_ayework.worker import bounds

#: Seconds of rest for which a thread keeps its connection: the next outcome may come soon.
KEPT = 5.0
#: Seconds until a thread whose loop was ended by an error begins again.
BEGIN_AGAIN_AFTER = 0.2
#: Seconds between two reports of an error that goes on, at most.
LONGEST_SILENCE = 10.0
#: Seconds that the watchdog waits for the log.
LOG_PATIENCE = 1.0


class EngineThread:
    """Runs ``serve(heartbeat)`` until that returns; an error that it lets through does not end the thread.

    ``waits_for_locks`` is for threads that no other thread depends on, see ``engine_session``.
    """

    def __init__(self, name: str, serve: Callable[[Heartbeat], None], waits_for_locks: bool = False) -> None:
        self.heartbeat = Heartbeat(name)
        self._serve = serve
        self._waits_for_locks = waits_for_locks
        self.thread = threading.Thread(target=self._run, name=f"ayework-{name}", daemon=True)
        #: Whether the thread was started. One that is just starting has an id, and is not alive yet.
        self.was_started = False
        #: Whether the thread has done its work.
        self.has_ended = False

    def start(self) -> None:
        """Start the thread."""
        self.thread.start()
        self.was_started = True

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end of the thread, if it was started."""
        if self.was_started:
            self.thread.join(timeout)

    @property
    def is_gone(self) -> bool:
        """Whether the thread was started, and has ended before its time."""
        return self.was_started and not self.thread.is_alive() and not self.has_ended

    def _run(self) -> None:
        """Serve in a session of the engine's own; begin again after an error.

        A receiver, a hook or a middleware may raise errors that are no Exception. Every work depends on this
        thread, so no error ends it.
        """
        with self.heartbeat.of_this_thread(), engine_session(self._waits_for_locks):
            while not self.has_ended:
                try:
                    self._serve(self.heartbeat)
                    self.has_ended = True
                except BaseException as error:
                    report(error, "queue", f"the thread {self.heartbeat.name!r} failed and begins again")
                    time.sleep(BEGIN_AGAIN_AFTER)
            close_all_connections()  # those of receivers and hooks, too


def log_in_time(write: Callable[[], object]) -> None:
    """Write to the log; go on after a moment in any case, as a handler of the log may hang.

    For the threads by which a worker ends that cannot go on.
    """
    writer = threading.Thread(target=write, name="ayework-log", daemon=True)
    try:
        writer.start()
    except RuntimeError:  # the system has no thread left
        write()
    else:
        writer.join(LOG_PATIENCE)


class TimelyLogger:
    """Writes to a logger as ``log_in_time`` does, for a process that has one thread."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def info(self, text: str, *args: object) -> None:
        """Log at the level INFO."""
        log_in_time(lambda: self._logger.info(text, *args))

    def error(self, text: str, *args: object) -> None:
        """Log at the level ERROR."""
        log_in_time(lambda: self._logger.error(text, *args))


class WakeEvent(threading.Event):
    """An event that wakes one thread, which clears it before it looks for what there is to do.

    Setting it again takes no lock: slots set it at each end of a work, and would wait for one another.
    """

    def set(self) -> None:
        """Wake the thread. What it is to find must be in place before."""
        if not self.is_set():
            super().set()


class LoopThread(EngineThread):
    """A thread that calls :meth:`turn` again and again, and rests in between.

    An error costs a pause, which grows while errors go on. The rest after a turn ends early when the wake
    event is set; a pause after an error ends early only when the thread is to stop, as nothing else helps
    against a database that is away.
    """

    #: The report of a turn that raised.
    failure = "a thread of the engine failed and carries on"

    def __init__(self, name: str, recovery: Recovery, waits_for_locks: bool = False) -> None:
        super().__init__(name, self._loop, waits_for_locks)
        self.wake = WakeEvent()
        self._recovery = recovery
        self._stopping = threading.Event()

    def turn(self) -> float:
        """Do the due duties; return the seconds until the next one."""
        raise NotImplementedError

    def request_stop(self) -> None:
        """Let the thread end after its present turn; return at once."""
        self._stopping.set()
        self.wake.set()

    def stop(self) -> None:
        """Let the thread end after its present turn; wait for that, but not for ever."""
        self.request_stop()
        self.join(bounds.LAST_DUTIES)

    def is_over(self) -> bool:
        """Tell whether the loop is to end."""
        return self._stopping.is_set()

    def guarded_turn(self) -> tuple[float, threading.Event]:
        """Do one turn; return the seconds to rest, and the event that ends the rest early."""
        try:
            pause = self.turn()
            if pause > 0:
                tidy_connections()  # of code of the project's
        except Exception as error:
            report(error, "queue", self.failure, brief=self._recovery.goes_on)
            close_all_connections()
            return self._recovery.fail(), self._stopping
        self._recovery.succeed()
        return pause, self.wake

    def _loop(self, heartbeat: Heartbeat) -> None:
        while True:
            self.wake.clear()
            if self.is_over():
                return
            heartbeat.beat()
            pause, ends_rest = self.guarded_turn()
            if pause > 0 and not self.is_over():  # the turn may have been the last; its wake-up was cleared
                heartbeat.beat(rest=pause)
                if pause > KEPT and not ends_rest.wait(KEPT):
                    close_all_connections()
                    pause -= KEPT
                ends_rest.wait(None if math.isinf(pause) else pause)


class Recovery:
    """Pauses in seconds, each about twice the one before, spread so that workers do not return together."""

    def __init__(self, first: float, longest: float) -> None:
        self._first, self._longest = first, longest
        self._next = first
        #: Whether the last try failed, too.
        self.goes_on = False

    def fail(self) -> float:
        """Note another failure; return the seconds to wait."""
        self.goes_on = True
        pause, self._next = self._next, min(self._next * 2, self._longest)
        return pause * random.uniform(0.75, 1.0)  # noqa: S311  # spreads the fleet

    def succeed(self) -> None:
        """Note a success: the next pause is a short one again."""
        self._next = self._first
        self.goes_on = False


class Failures:
    """Reports errors of code that is called again and again: the first at once, the next after longer pauses.

    Most of them would say the same. Only the first one has its traceback.
    """

    def __init__(self) -> None:
        self._recovery = Recovery(BEGIN_AGAIN_AFTER, LONGEST_SILENCE)
        self._ends_at = float("-inf")

    @property
    def is_paused(self) -> bool:
        """Whether the pause after the last report lasts."""
        return time.monotonic() < self._ends_at

    def report(self, error: BaseException, message: str) -> None:
        """Report an error, and begin a pause, unless one lasts."""
        if not self.is_paused:
            report(error, "queue", message, brief=self._recovery.goes_on)
            self._ends_at = time.monotonic() + self._recovery.fail()

    def succeed(self) -> None:
        """Note a call that has not failed: the next error is reported at once."""
        self._recovery.succeed()
        self._ends_at = float("-inf")


T = TypeVar("T")


def twice(act: Callable[[], T]) -> T:
    """Query the database; query once more if the connection was open before and has been lost."""
    was_open = connection().connection is not None
    try:
        return act()
    except (OperationalError, InterfaceError):
        close_all_connections()
        if not was_open:
            raise
        return act()
