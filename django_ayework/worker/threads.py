"""The threads of a worker: how they start, sleep, recover and stop."""

from __future__ import annotations

import gc
import random
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from django.db import InterfaceError, OperationalError, connections

from django_ayework.flow.events import report
from django_ayework.heartbeat import Heartbeat
from django_ayework.store.database import connection
from django_ayework.store.sessions import engine_session

# --- threads ---
# The threads of the engine: each with a heartbeat and, if it asks the database, a session of its own.

#: Seconds until a loop that was ended by an error begins again.
BEGIN_AGAIN_AFTER = 0.2


class EngineThread:
    """Runs ``serve(heartbeat)`` until that returns; an error that it lets through does not end the thread.

    ``waits_for_locks`` is for threads that no other thread depends on, see ``engine_session``.
    """

    def __init__(self, name: str, serve: Callable[[Heartbeat], None], waits_for_locks: bool = False) -> None:
        self.heartbeat = Heartbeat(name)
        self._serve = serve
        self._waits_for_locks = waits_for_locks
        self.thread = threading.Thread(target=self._run, name=f"ayework-{name}", daemon=True)
        #: Whether the thread has done what it was to do.
        self.has_ended = False

    def start(self) -> None:
        """Start the thread."""
        self.thread.start()

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end of the thread, if it was started."""
        if self.was_started:
            self.thread.join(timeout)

    @property
    def was_started(self) -> bool:
        """Whether the thread was started."""
        return self.thread.ident is not None

    def is_alive(self) -> bool:
        """Tell whether the thread runs."""
        return self.thread.is_alive()

    @property
    def is_gone(self) -> bool:
        """Whether the thread was started, and has ended before its time."""
        return self.was_started and not self.is_alive() and not self.has_ended

    def _run(self) -> None:
        """Serve in a session of the engine's own, again after whatever is raised in the loop.

        What a receiver, a hook or a middleware raises may be no Exception. A thread that it ended would be
        missed by every work.
        """
        with self.heartbeat.of_this_thread(), engine_session(self._waits_for_locks):
            while not self.has_ended:
                try:
                    self._serve(self.heartbeat)
                    self.has_ended = True
                except BaseException as error:
                    report(error, "queue", f"the thread {self.heartbeat.name!r} failed and begins again")
                    time.sleep(BEGIN_AGAIN_AFTER)


# --- recovery ---
# What to do when the database could not be reached: wait a little longer each time, or try once more.

T = TypeVar("T")


class Recovery:
    """Pauses in seconds, each about twice the one before, spread so that workers do not come back as one."""

    def __init__(self, first: float, longest: float) -> None:
        self._first, self._longest = first, longest
        self._next = first
        #: Whether it was not reached the last time either.
        self.goes_on = False

    def fail(self) -> float:
        """Note another failure; return how long to wait."""
        self.goes_on = True
        pause, self._next = self._next, min(self._next * 2, self._longest)
        return pause * random.uniform(0.75, 1.0)  # noqa: S311  # spreads the fleet

    def succeed(self) -> None:
        """Note that it was reached: the next pause is a short one again."""
        self._next = self._first
        self.goes_on = False


def twice(act: Callable[[], T]) -> T:
    """Do something that asks the database; once more if the connection that was open has been lost."""
    was_open = connection().connection is not None
    try:
        return act()
    except (OperationalError, InterfaceError):
        connections.close_all()
        if not was_open:
            raise
        return act()


# --- bell ---
# A bell: wakes a thread that waits for news, and may be rung where no lock may be taken.


class Bell:
    """Rung by signals, and by other threads.

    A signal handler interrupts its thread anywhere, also where it holds the lock of an ``Event`` it is about
    to wait for; to set that event in the handler would then wait for ever. Writing to a socket never waits.
    """

    def __init__(self) -> None:
        self._near, self._far = socket.socketpair()
        self._near.setblocking(False)
        self._far.setblocking(False)
        self._before: int | None = None

    def hear_signals(self) -> None:
        """Ring whenever a signal comes that has a handler; only one bell at a time can."""
        self._before = signal.set_wakeup_fd(self._far.fileno(), warn_on_full_buffer=False)

    def ring(self) -> None:
        """Wake whoever waits."""
        with suppress(OSError):  # it has been rung often enough
            self._far.send(b"!")

    def wait(self) -> None:
        """Wait until it has been rung."""
        select.select([self], [], [])
        self.hush()

    def hush(self) -> None:
        """Forget that it was rung."""
        with suppress(BlockingIOError):
            while self._near.recv(4096):
                pass

    def fileno(self) -> int:
        """Return what to wait for besides other things."""
        return self._near.fileno()

    def close(self) -> None:
        """Be done with it, and leave signals to whoever heard them before."""
        if self._before is not None:
            signal.set_wakeup_fd(self._before)
        self._near.close()
        self._far.close()


# --- wake ---
# What the claiming loop sleeps on.

#: Seconds that another thread takes to begin, or several.
A_MOMENT = 0.0005


class Wake(threading.Event):
    """An event that many set and one waits for: to set it again while it is set costs next to nothing."""

    def set(self) -> None:
        """Wake the loop."""
        if not self.is_set():
            super().set()

    def give_way(self) -> None:
        """Let threads begin that were just given something, and need the interpreter for it."""
        self.wait(A_MOMENT)


# --- interpreter ---
# How a worker's threads share the interpreter.

#: Seconds after which Python asks the thread that runs to let another one run, if nobody has said otherwise.
PYTHONS_OWN = 0.005
#: The same in a worker. Threads that claim and settle do a few microseconds of Python between round trips,
#: and after each they wait for whoever is running a handler.
OURS = 0.001


def take_turns_quickly() -> None:
    """Let threads take turns more often; a project that has chosen for itself is left alone."""
    if sys.getswitchinterval() == PYTHONS_OWN:
        sys.setswitchinterval(OURS)


# --- garbage ---
# Garbage collection in processes that do nothing but work.


def leave_out_what_is_loaded() -> None:
    """Let the collector never look again at what this process has loaded so far: all of it stays in use.

    For processes that do nothing but work, before they start threads or children. To look through a project
    takes a twentieth of a second and more, in which nothing else runs; each group of some thousand works
    made that happen. Children share the memory for longer, as nothing is noted on it.
    """
    if hasattr(gc, "freeze"):
        gc.freeze()


# --- memory ---
# How much memory this process uses.

STATM = Path("/proc/self/statm")


def resident_bytes() -> int:
    """Return how much memory the process holds now; where the system does not tell, the most it ever held.

    Linux tells in ``/proc``. macOS and others tell the peak alone, so there one spike counts for ever.
    """
    try:
        import resource
    except ImportError:  # neither Linux nor macOS
        return 0
    try:
        return int(STATM.read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
