"""One worker as a whole process: its interpreter, OS signals, its end, its supervisor, and reloading."""

from __future__ import annotations

import gc
import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict
from types import FrameType

from django_ayework.compat import (
    CHANGED,
    environment_of_reloaded,
    run_until_changed,
    surround_forks,
    this_command,
)
from django_ayework.documentation import logged
from django_ayework.logs import logger
from django_ayework.rules.health import ALIVE, Signs
from django_ayework.store.connections import tidy_connections
from django_ayework.worker import bounds
from django_ayework.worker.skip_queue import intake
from django_ayework.worker.worker import Worker

#: The exit status of a supervised worker that cannot run on the database as it is, nor could another.
REFUSED = 78
#: The exit status of a process whose worker cannot go on: EX_SOFTWARE of sysexits.h.
LOST = 70
#: Seconds within which signals count as one. A service manager sends SIGTERM to a group, and a supervisor or
#: a shell in that group passes its own on.
TOGETHER = 0.2
#: The signals that ask for an end. Windows has neither SIGHUP nor a mask that holds signals back.
SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name))
HAS_MASK = hasattr(signal, "pthread_sigmask")


#: Seconds after which Python asks the running thread to let another one run, by default and in a worker.
#: Threads that claim and settle do a few microseconds of Python between round trips, and after each they wait
#: for the thread that runs a handler.
DEFAULT_SWITCH_INTERVAL, SWITCH_INTERVAL = 0.005, 0.001


def shorten_switch_interval() -> None:
    """Let threads take turns more often; a project that has set an interval of its own is left alone."""
    if sys.getswitchinterval() == DEFAULT_SWITCH_INTERVAL:
        sys.setswitchinterval(SWITCH_INTERVAL)


def use_one_cpu(number: int) -> int:
    """Keep this thread, and those that it starts, on one of the CPUs it may use; return which one.

    Processes with successive numbers get different ones, as far as there are enough. Threads of one
    interpreter take turns. If they wait on several CPUs, a thread is woken on another CPU whenever a handler
    reads or writes, and often finds that the first one goes on.
    """
    cpus = sorted(os.sched_getaffinity(0))
    cpu = cpus[number % len(cpus)]
    os.sched_setaffinity(0, {cpu})
    return cpu


def freeze_loaded_objects() -> None:
    """Exclude everything that is loaded by now from garbage collection: all of it stays in use.

    For processes that only work, before they start threads or children. To look through a project takes a
    twentieth of a second and more, in which nothing else runs, and some thousand works made that happen
    again. Children share the memory for longer, as the collector writes nothing to it.
    """
    if hasattr(gc, "freeze"):
        gc.freeze()


class WakePipe:
    """Wakes a thread that waits in ``select``; signals and other threads may do so.

    A signal handler interrupts its thread anywhere, also where that thread holds the lock of an ``Event`` it
    is about to wait for; to set the event in the handler would then wait for ever. Writing to a socket never
    waits.
    """

    def __init__(self) -> None:
        self._near, self._far = socket.socketpair()
        self._near.setblocking(False)
        self._far.setblocking(False)
        self._before: int | None = None

    def wake_on_signals(self) -> None:
        """Wake the waiting thread for each signal with a handler; one pipe per process can do so."""
        self._before = signal.set_wakeup_fd(self._far.fileno(), warn_on_full_buffer=False)

    def wake(self) -> None:
        """Wake the waiting thread."""
        with suppress(OSError):  # the pipe is full, so the thread is woken anyway
            self._far.send(b"!")

    def wait(self) -> None:
        """Wait until woken."""
        select.select([self], [], [])
        self.clear()

    def clear(self) -> None:
        """Forget past wake-ups."""
        with suppress(BlockingIOError):
            while self._near.recv(4096):
                pass

    def fileno(self) -> int:
        """Return the descriptor to wait for besides others."""
        return self._near.fileno()

    def close(self) -> None:
        """Close the pipe; signals wake whatever they woke before."""
        if self._before is not None:
            signal.set_wakeup_fd(self._before)
        self._near.close()
        self._far.close()


class StopSignals:
    """The signals that asked for an end; those that come together count as one."""

    def __init__(self, first_at: float | None = None) -> None:
        self.numbers: list[int] = []
        #: Whether a second one asked for an end at once.
        self.is_urgent = False
        self._first_at = first_at

    def note(self, number: int) -> None:
        """Note a signal, unless it belongs to the first one."""
        now = time.monotonic()
        if self._first_at is None:
            self._first_at = now
            self.numbers.append(number)
        elif now - self._first_at > TOGETHER:
            self.is_urgent = True
            self.numbers.append(number)


def stop_signals(second_ends: Callable[[], bool] = lambda: True, first_at: float | None = None) -> list[int]:
    """Return a list that receives the signals that ask for an end; the second one ends the process at once.

    ``first_at`` is when an earlier one came, if any did. A process that a handler forks ends at its first.
    """
    signals = StopSignals(first_at)

    def handle(number: int, frame: FrameType | None) -> None:
        signals.note(number)
        if signals.is_urgent and second_ends():
            os._exit(128 + number)

    handle_signals(handle)
    forks.noting = handle
    return signals.numbers


class Forks:
    """Lets the processes that handlers fork end at a signal: they would note it, as their parent does.

    The end of a ``multiprocessing.Pool`` would wait for them for ever. Python forgets a signal that comes
    while it sets up a child, so signals are held back meanwhile.
    """

    #: What notes the signals of this process, if anything does.
    noting: Callable[[int, FrameType | None], None] | None = None

    def __init__(self) -> None:
        self._thread = threading.local()
        surround_forks(
            before=self._hold_back, after_in_parent=self._restore, after_in_child=self._end_at_signals
        )

    def _hold_back(self) -> None:
        self._thread.mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)

    def _restore(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._thread.mask)

    def _end_at_signals(self) -> None:
        for number in SIGNALS:
            if self.noting is not None and signal.getsignal(number) is self.noting:
                signal.signal(number, signal.SIG_DFL)
        self._restore()


forks = Forks()


def handle_signals(handler: Callable[[int, FrameType | None], None]) -> None:
    """Install a handler of the signals that ask for an end, then let through those that were held back.

    A process that ``nohup`` has started ignores SIGHUP, and goes on to do so.
    """
    for number in SIGNALS:
        if number in (signal.SIGTERM, signal.SIGINT) or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)
    if HAS_MASK:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


@contextmanager
def signals_held_back() -> Generator[None]:
    """Hold back signals that ask for an end until a handler is installed, which lets them through."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS) if HAS_MASK else None
    try:
        yield
    finally:
        if before is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def serve(worker: Worker, second_ends: Callable[[], bool] = lambda: True) -> int:
    """Run a worker until it has done all its work, or a signal stops it; return the exit status.

    The worker runs in a thread of its own: this one receives signals even while a statement does not return.
    The status is 0 after an orderly end, and 1 when works were left to their leases. A second signal ends the
    process at once, unless ``second_ends`` answers that another process does so.

    A worker that has lost a thread or its database file cannot be stopped in order: the process ends at
    once with the status ``LOST``, so that a service manager starts it again. Its works are left to their
    leases.
    """
    with closing(WakePipe()) as pipe:
        worker.health.listeners.append(pipe.wake)
        pipe.wake_on_signals()
        received = stop_signals(second_ends)
        tidy_connections()  # this thread needs none from now on, and a pool may have none to spare
        worker.start()
        while not received and worker.health.phase in ALIVE and not worker.lost:
            pipe.wait()
        if worker.lost:
            exit_in_time(LOST)
            leave(LOST)
        intake.close()  # works that skip the queue have the same grace
        stopped = worker.stop(), intake.stop()
        intake.forget()  # the process may go on
        return 0 if all(stopped) and not worker.left else 1


def exit_in_time(status: int) -> None:
    """End this process soon: threads of handlers that do not return could keep it for ever."""

    def end() -> None:
        time.sleep(bounds.EXIT)
        os._exit(status)

    threading.Thread(target=end, name="ayework-exit", daemon=True).start()


def leave(status: int) -> None:
    """End a forked process at once: what its parent has prepared for its own end is not for it."""
    try:
        logging.shutdown()
        flush_output()
    finally:
        os._exit(status)


def flush_output() -> None:
    """Write what was printed; the program that read it may have ended, and its disk may be full."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()


#: By this variable a child that runs the command again gets its end of the pipe, its number, and the port of
#: the metrics, which the supervisor has chosen if --metrics-port is 0.
SUPERVISED = "AYEWORK_SUPERVISED"


def inherited() -> tuple[socket.socket, int, int] | None:
    """Return what a child that runs the command again got from its supervisor; None for others."""
    value = os.environ.pop(SUPERVISED, None)
    if value is None:
        return None
    descriptor, number, port = map(int, value.split(","))
    end = socket.socket(fileno=descriptor)
    end.set_inheritable(False)
    return end, number, port


def send_signs(end: socket.socket, signs: Signs) -> None:
    """Write how a worker is; a supervisor that does not read misses it."""
    with suppress(OSError):
        end.sendall(json.dumps(asdict(signs)).encode() + b"\n")


class SupervisorLink:
    """Sends the supervisor how a worker is, and stops the worker in order when the supervisor has gone."""

    def __init__(self, end: socket.socket, worker: Worker) -> None:
        #: Whether the supervisor is there.
        self.holds = True
        self._end = end
        self._worker = worker
        self._lock = threading.Lock()
        end.settimeout(bounds.BEAT)
        worker.health.listeners.append(self.send)
        threading.Thread(target=self._serve, name="ayework-supervised", daemon=True).start()

    def send(self) -> None:
        """Send how the worker is."""
        with self._lock:
            send_signs(self._end, self._worker.health.signs())

    def _serve(self) -> None:
        """Send again and again, until the other end is closed, which never sends anything."""
        while self.holds:
            self.send()
            try:
                self.holds = bool(self._end.recv(1))
            except TimeoutError:
                pass
            except OSError:
                self.holds = False
        logger.warning(
            "The supervisor of worker %s has gone; the worker stops. %s",
            self._worker.id,
            logged("supervisor-gone"),
        )
        self._worker.request_stop()


def start_again_and_again() -> int:
    """Run this very command in a child, anew after each change of code; return the status it ends with.

    Ctrl-C reaches the child by itself; SIGTERM is passed on. Neither keeps it from ending in order.
    """
    signal.signal(signal.SIGINT, lambda number, frame: None)
    while True:
        with subprocess.Popen(this_command(), env=environment_of_reloaded()) as child:  # noqa: S603
            signal.signal(signal.SIGTERM, lambda number, frame: child.send_signal(number))
            if child.wait() != CHANGED:
                return child.returncode


def serve_until_changed(worker: Worker) -> None:
    """Work until code changes or a signal comes; running works end in order first."""

    def work() -> None:
        worker.start()
        worker.wait()

    try:
        run_until_changed(work)
    finally:
        stop_signals(first_at=float("-inf"))  # the next one is the second one
        worker.stop()
