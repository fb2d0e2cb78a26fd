"""Worker processes, and waiting for what they do."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
ROOT = Path(__file__).parents[1]
PATIENCE = 45.0
#: Bytes that a process may print before somebody reads; more, and it would stand still until somebody does.
UNREAD = 2**20


def eventually(look: Callable[[], T], seconds: float = PATIENCE) -> T:
    """Look until there is something to see, and return it."""
    until = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < until, f"it never came: {look}"
        time.sleep(0.01)
    return seen


@contextmanager
def worker_process(env: dict[str, str], *arguments: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Run ``ayework_worker`` in a process of its own; it is killed at the latest at the end of the block."""
    command = [sys.executable, "-m", "django", "ayework_worker", *arguments]
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "pipesize": UNREAD}
    options = {"cwd": ROOT} | output | options
    with subprocess.Popen(command, env=env, **options) as process:
        try:
            yield process
        finally:
            process.kill()
            process.communicate()


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for the end of a process; return its status and what it printed."""
    output, _ = process.communicate(timeout=PATIENCE)
    return process.returncode, output


def ended_well(process: subprocess.Popen[str]) -> str:
    """Wait for the end of a process, whose status must be 0; return what it printed."""
    status, output = ended(process)
    assert status == 0, output
    return output


def stopped(process: subprocess.Popen[str]) -> str:
    """Ask a process to stop, which must then end with status 0; return what it printed."""
    process.send_signal(signal.SIGTERM)
    return ended_well(process)


def health_address(process: subprocess.Popen[str]) -> str:
    """Read where a process tells its health, which is the first thing it prints."""
    assert process.stdout
    line = process.stdout.readline()
    found = re.search(r"http://[\d.:]+", line)
    assert found, line
    return found[0]


def get(url: str) -> tuple[int, dict[str, Any]]:
    """Return the status and the body of an answer."""
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


@contextmanager
def unread_pipe() -> Iterator[int]:
    """Open the writing end of a pipe whose reading end is closed."""
    near, far = os.pipe()
    os.close(near)
    try:
        yield far
    finally:
        os.close(far)


@contextmanager
def full_disk() -> Iterator[int]:
    """Open a file that takes nothing."""
    with open("/dev/full", "wb") as file:
        yield file.fileno()
