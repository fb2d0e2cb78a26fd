"""Private parts of CPython that the engine uses do what it expects of them."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from typing import Any

import pytest

from django_ayework import compat
from tests.processes import ROOT


def test_frames_of_another_thread_are_the_innermost_first():
    begun, until = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        until.wait(60)

    thread = threading.Thread(target=wait)
    thread.start()
    begun.wait(60)
    try:
        names = [frame.f_code.co_name for frame in compat.frames_of_thread(thread.ident)]
    finally:
        until.set()
        thread.join()
    assert names[names.index("run") :] == ["run", "_bootstrap_inner", "_bootstrap"]
    assert wait.__name__ in names[: names.index("run")]


def test_a_thread_that_is_gone_has_no_frames():
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
    assert compat.frames_of_thread(thread.ident) == []


def test_no_garbage_collection_starts_while_frames_of_another_thread_are_read(monkeypatch):
    """A collection there could let that thread move on, and CPython look at memory that is gone."""
    enabled: list[bool] = []
    frames_of = sys._current_frames

    def current_frames() -> dict[int, Any]:
        enabled.append(gc.isenabled())
        return frames_of()

    monkeypatch.setattr(compat.sys, "_current_frames", current_frames)
    assert compat.frames_of_thread(threading.get_ident())
    assert enabled == [False]
    assert gc.isenabled()


def test_an_exception_can_be_set_and_taken_back():
    this = threading.get_ident()
    with pytest.raises(ArithmeticError):
        compat.set_async_exception(this, ArithmeticError)
        for _ in range(1000):
            pass
    compat.set_async_exception(this, None)


PROGRAM = """
import atexit
from concurrent.futures import thread
from django_ayework.compat import before_threads_end
before_threads_end(lambda: print("threads run" if not thread._shutdown else "too late"))
atexit.register(lambda: print("exit"))
"""


def test_functions_run_before_the_executors_of_asyncio_are_shut_down():
    command = [sys.executable, "-c", PROGRAM]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["threads", "run", "exit"]
