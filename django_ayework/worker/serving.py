"""One worker as a whole process: OS signals, an orderly end, and reloading for development."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from types import FrameType

from django.utils import autoreload

from django_ayework.rules.health import ALIVE
from django_ayework.worker import bounds
from django_ayework.worker.direct import intake
from django_ayework.worker.threads import Bell
from django_ayework.worker.worker import Worker

# --- serving ---
# One worker as a whole process: OS signals, and an end that comes in time whatever the database does.

#: The exit status of a supervised worker that cannot run on the database as it is, nor could another.
REFUSED = 78
#: Seconds within which signals are one. A service manager sends SIGTERM to a group, and a supervisor or a
#: shell in that group passes its own on.
TOGETHER = 0.2
SIGNALS = (signal.SIGTERM, signal.SIGINT)
#: The exit status of a process whose worker cannot go on: EX_SOFTWARE of sysexits.h.
LOST = 70


def serve(worker: Worker, second_ends: Callable[[], bool] = lambda: True) -> int:
    """Run a worker until it has done all it was to do, or a signal stops it; return the exit status.

    The worker runs in a thread of its own: this one hears signals even while a statement does not return.
    The status is 0 after an orderly end, and 1 when works were left to their leases. A second signal ends the
    process at once, unless ``second_ends`` answers that it is somebody else's to do so.

    A worker that has lost one of its threads cannot be stopped in order: the process ends at once with the
    status ``LOST``, so that a service manager starts it again. Its works are left to their leases.
    """
    with closing(Bell()) as bell:
        worker.vitals.listeners.append(bell.ring)
        bell.hear_signals()
        heard = hear_signals(second_ends)
        worker.start()
        while not heard and worker.vitals.phase in ALIVE and not worker.lost:
            bell.wait()
        if worker.lost:
            exit_in_time(LOST)
            leave(LOST)
        intake.close()  # what skips the queue has the same grace
        stopped = worker.stop(), intake.stop()
        intake.forget()  # the process may go on
        return 0 if all(stopped) and not worker.left else 1


def hear_signals(second_ends: Callable[[], bool] = lambda: True, first_at: float | None = None) -> list[int]:
    """Return a list into which signals go that ask for an end; the second one ends the process at once.

    ``first_at`` is when one was heard before, if any was.
    """
    heard = StopSignals(first_at)

    def hear(number: int, frame: FrameType | None) -> None:
        heard.note(number)
        if heard.is_urgent and second_ends():
            os._exit(128 + number)

    handle_signals(hear)
    return heard.numbers


class StopSignals:
    """The signals that asked for an end; those that come together are one."""

    def __init__(self, first_at: float | None = None) -> None:
        self.numbers: list[int] = []
        #: Whether a second one asked for an end at once.
        self.is_urgent = False
        self._first_at = first_at

    def note(self, number: int) -> None:
        """Note a signal, unless it is the first one once more."""
        now = time.monotonic()
        if self._first_at is None:
            self._first_at = now
            self.numbers.append(number)
        elif now - self._first_at > TOGETHER:
            self.is_urgent = True
            self.numbers.append(number)


def handle_signals(handler: Callable[[int, FrameType | None], None]) -> None:
    """Install a handler of the signals that ask for an end, then let through those that were held back."""
    for number in SIGNALS:
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


@contextmanager
def signals_held_back() -> Generator[None]:
    """Hold back signals that ask for an end until a handler is installed, which lets them through."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def exit_in_time(status: int) -> None:
    """See that this process ends soon: threads of handlers that do not return could keep it for ever."""

    def end() -> None:
        time.sleep(bounds.EXIT)
        os._exit(status)

    threading.Thread(target=end, name="ayework-exit", daemon=True).start()


def leave(status: int) -> None:
    """End a forked process at once: what its parent has prepared for its own end is not for it."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)


# --- reloading ---
# A worker for development, which starts anew when code changes.

#: The exit status by which Django's reloader asks to be started again.
CHANGED = 3


def is_reloaded() -> bool:
    """Tell whether this is the process that works, rather than the one that starts it again and again."""
    return os.environ.get(autoreload.DJANGO_AUTORELOAD_ENV) == "true"


def start_again_and_again() -> int:
    """Run this very command in a child, anew after each change; return the status it ends with.

    Ctrl-C reaches the child by itself; SIGTERM is passed on. Neither keeps it from ending in order.
    """
    environment = {**os.environ, autoreload.DJANGO_AUTORELOAD_ENV: "true"}
    signal.signal(signal.SIGINT, lambda number, frame: None)
    this_command = autoreload.get_child_arguments()
    while True:
        with subprocess.Popen(this_command, env=environment) as child:  # noqa: S603
            pass_on(signal.SIGTERM, child)
            if child.wait() != CHANGED:
                return child.returncode


def pass_on(number: int, child: subprocess.Popen[bytes]) -> None:
    """Let a signal reach the child."""

    def send(number: int, frame: FrameType | None) -> None:
        child.send_signal(number)

    signal.signal(number, send)


def serve_until_changed(worker: Worker) -> None:
    """Work until code changes or a signal comes; running works end in order first."""
    try:
        autoreload.run_with_reloader(stay_with, worker)
    finally:
        hear_signals(first_at=float("-inf"))  # whatever comes now is the second one
        worker.stop()


def stay_with(worker: Worker) -> None:
    """Work, in the thread that Django's reloader watches."""
    worker.start()
    worker.wait()
