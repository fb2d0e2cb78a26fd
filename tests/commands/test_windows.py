"""What Windows lacks: the worker runs without it, in one process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from django_ayework import enqueue
from tests.app.works import add
from tests.processes import PATIENCE, ROOT

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendors("sqlite")]
#: Runs a command without the functions, signals and modules that the documentation of Python calls "Unix".
#: Modules of Python that have their own way on Windows are loaded before.
WINDOWS = """
import asyncio, multiprocessing, os, signal, socketserver, subprocess, sys
from django.core.management import execute_from_command_line

for name in ("fork", "posix_spawn", "register_at_fork", "sched_getaffinity", "sched_setaffinity", "WNOHANG"):
    delattr(os, name)
for name in ("SIGHUP", "SIGKILL", "SIGCHLD", "SIG_BLOCK", "SIG_SETMASK", "SIG_UNBLOCK", "pthread_sigmask"):
    delattr(signal, name)
sys.modules["fcntl"] = sys.modules["resource"] = None
execute_from_command_line(["manage.py", *sys.argv[1:]])
"""


def run(env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the worker's command as on Windows."""
    command = [sys.executable, "-c", WINDOWS, "ayework_worker", *arguments]
    return subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)


def test_a_worker_runs_works(process_env):
    handle = enqueue(add(a=1, b=2))
    ended = run(process_env, "--burst", "--health-port", "0", "--max-memory", "1000")
    assert ended.returncode == 0, ended.stderr
    assert handle.result(timeout=0) == 3


@pytest.mark.parametrize(("arguments", "message"), [
    (["--processes", "2"], "expected --processes to be 1 on this system, which has no fork, got: 2; start "),
    (["--one-cpu"], "expected --one-cpu on Linux only"),
])  # fmt: skip
def test_an_option_that_needs_more_is_refused(process_env, arguments, message):
    ended = run(process_env, "--burst", *arguments)
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"CommandError: {message}")
