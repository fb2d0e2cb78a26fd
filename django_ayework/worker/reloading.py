"""A worker for development, which starts anew when code changes."""

from __future__ import annotations

import os
import signal
import subprocess
from types import FrameType

from django.utils import autoreload

from django_ayework.worker.serving import hear_signals
from django_ayework.worker.worker import Worker

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
