"""Worker processes, and waiting for what they do."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
ROOT = Path(__file__).parents[1]
PATIENCE = 45.0


def eventually(look: Callable[[], T], seconds: float = PATIENCE) -> T:
    """Look until there is something to see, and return it."""
    until = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < until, f"it never came: {look}"
        time.sleep(0.01)
    return seen


@contextmanager
def worker_process(env: dict[str, str], *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run ``ayework_worker`` in a process of its own; it is killed at the latest at the end of the block."""
    command = [sys.executable, "-m", "django", "ayework_worker", *arguments]
    with subprocess.Popen(
        command, env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()
            process.communicate()


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for the end of a process; return its status and what it printed."""
    output, _ = process.communicate(timeout=PATIENCE)
    return process.returncode, output
