"""Private and undocumented parts of others are still there, and do what the package takes them to do."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest
from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import connection

from django_ayework import compat

#: Prints "late" where atexit is too late to start a thread for a coroutine.
ENDING = """
import asyncio, concurrent.futures.thread
from django_ayework.compat import before_threads_end

def end():
    asyncio.run(asyncio.to_thread(print, "a thread was started"))

before_threads_end(end)
"""


def test_a_callback_runs_in_each_forked_child():
    pids: list[int] = []
    compat.after_fork_in_child(lambda: pids.append(os.getpid()))
    child = os.fork()
    if not child:
        os._exit(0 if pids == [os.getpid()] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert pids == []


def test_as_the_interpreter_ends_executors_still_work():
    ended = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True, timeout=60)
    assert ended.stdout == "a thread was started\n", ended.stderr


def test_a_context_has_a_thread_once_it_has_run_something_in_it():
    async def found() -> list[bool]:
        async with ThreadSensitiveContext() as context:
            before = compat.has_thread(context)
            await sync_to_async(int)()
            return [before, compat.has_thread(context)]

    assert asyncio.run(found()) == [False, True]


def test_the_command_of_this_process_is_its_interpreter_with_its_arguments(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "argv", [__file__, "--flag"])
    command = compat.this_command()
    assert (command[0], command[-2:]) == (sys.executable, [__file__, "--flag"])


def test_a_reloaded_process_is_known_by_its_environment(monkeypatch: pytest.MonkeyPatch):
    assert not compat.is_reloaded()
    for name, value in compat.environment_of_reloaded().items():
        monkeypatch.setenv(name, value)
    assert compat.is_reloaded()


def test_code_runs_until_it_changes(monkeypatch: pytest.MonkeyPatch):
    """What comes after a change is tested with a worker, in tests/worker/test_reloading.py."""
    from django.utils import autoreload

    given: list[object] = []
    monkeypatch.setattr(autoreload, "run_with_reloader", given.append)
    compat.run_until_changed(len)
    assert given == [len]


def test_only_a_connection_with_a_pool_has_one_to_close(monkeypatch: pytest.MonkeyPatch):
    closed: list[str] = []
    monkeypatch.setattr(connection, "close_pool", lambda: closed.append("pool"), raising=False)
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", {})
    compat.close_pool(connection)
    assert closed == []
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", {"pool": True})
    compat.close_pool(connection)
    assert closed == ["pool"]
