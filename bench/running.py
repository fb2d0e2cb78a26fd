"""Measurements in processes of their own, which clean up after themselves even when they are told to stop."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import FrameType

#: Seconds in which a measurement ends its processes and drops its databases.
CLEAN_UP = 60.0


def run(command: Sequence[str], env: Mapping[str, str] | None = None) -> int:
    """Run a command and return its status; if this process is told to stop meanwhile, so is that one."""
    process = subprocess.Popen(command, env=env)
    try:
        return process.wait()
    except BaseException:
        process.terminate()
        try:
            process.wait(CLEAN_UP)
        except subprocess.TimeoutExpired:
            process.kill()
        raise


def stop_in_order() -> None:
    """Let SIGTERM end this process as an exception does, so that all it has made is cleaned up."""
    signal.signal(signal.SIGTERM, stop)


def stop(number: int, frame: FrameType | None) -> None:
    """Leave, and hear no further signal while cleaning up."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + number)
