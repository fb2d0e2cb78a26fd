"""Private and undocumented parts of others are still there, and do what the package takes them to do."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.contrib.admin import ModelAdmin, site
from django.db import DatabaseError, connection, transaction
from django.dispatch import Signal
from hypothesis import given, settings
from hypothesis import strategies as st

from django_ayework import compat
from django_ayework.compat import discard_after_call, is_discarding
from tests.app.models import Order
from tests.processes import ROOT

#: Prints whether the function comes before the executors are shut down, and before atexit.
ORDER = """
import atexit
from concurrent.futures import thread
from django_ayework.compat import before_threads_end
before_threads_end(lambda: print("threads run" if not thread._shutdown else "too late"))
atexit.register(lambda: print("exit"))
"""
#: Starts a thread for a coroutine as the interpreter ends; a function of atexit would be too late for that.
ENDING = """
import asyncio, concurrent.futures.thread
from django_ayework.compat import before_threads_end
before_threads_end(lambda: asyncio.run(asyncio.to_thread(print, "a thread was started")))
"""


def test_a_callback_runs_in_each_forked_child():
    pids: list[int] = []
    compat.after_fork_in_child(lambda: pids.append(os.getpid()))
    child = os.fork()
    if not child:
        os._exit(0 if pids == [os.getpid()] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert pids == []


@pytest.mark.parametrize(("statement", "is_noted"), [("SELECT nothing", True), ("SELECT 1", False)])
def test_an_error_of_the_database_is_noted_on_its_connection(transactional_db, statement, is_noted):
    with suppress(DatabaseError), connection.cursor() as cursor:
        cursor.execute(statement)
    assert compat.had_error(connection) is is_noted
    connection.close()


ENDS = [(ORDER, ["threads run", "exit"]), (ENDING, ["a thread was started"])]


@pytest.mark.parametrize(("source", "printed"), ENDS)
def test_functions_run_as_the_interpreter_ends_before_the_executors_of_asyncio_are_shut_down(source, printed):
    command = [sys.executable, "-c", source]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == printed, done.stderr


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
    assert names.index(wait.__name__) < names.index("run") < names.index("_bootstrap_inner")
    assert names[-1] == "_bootstrap"
    assert compat.frames_of_thread(thread.ident) == [], "a thread that is gone has none"


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


def test_it_is_seen_whether_an_exception_would_come_before_a_block_and_leave_it_entered():
    """An exception is set in a thread that waits for a lock; CPython 3.14 raises it outside of the block."""
    lock, begun = threading.Lock(), threading.Event()

    def wait() -> None:
        try:
            begun.set()
            with lock:
                begun.is_set()
        except ArithmeticError:
            pass

    lock.acquire()
    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    begun.wait(60)
    deadline = time.monotonic() + 60
    while compat.frames_of_thread(thread.ident)[0].f_lineno != wait.__code__.co_firstlineno + 3:
        assert time.monotonic() < deadline
    enters = compat.enters_block(compat.frames_of_thread(thread.ident)[0])
    compat.set_async_exception(thread.ident, ArithmeticError)
    lock.release()
    thread.join(60)
    assert lock.locked() == (sys.version_info[:2] == (3, 14))
    assert enters or not lock.locked()


def test_an_exception_can_be_set_and_taken_back():
    this = threading.get_ident()
    with pytest.raises(ArithmeticError):
        compat.set_async_exception(this, ArithmeticError)
        for _ in range(1000):
            pass
    compat.set_async_exception(this, None)


def test_a_context_has_a_thread_once_it_has_run_something_in_it():
    async def found() -> list[bool]:
        async with ThreadSensitiveContext() as context:
            before = compat.has_thread(context)
            await sync_to_async(int)()
            return [before, compat.has_thread(context)]

    assert asyncio.run(found()) == [False, True]


def test_what_outlives_a_context_runs_in_the_executor_that_it_is_handed_to():
    async def found(executor: ThreadPoolExecutor) -> str:
        go = asyncio.Event()

        async def outlive() -> str:
            await go.wait()
            return await sync_to_async(lambda: threading.current_thread().name)()

        async with ThreadSensitiveContext() as context:
            task = asyncio.create_task(outlive())
            await asyncio.sleep(0)
        compat.hand_over(context, executor)
        go.set()
        return await task

    with ThreadPoolExecutor(1, "late") as executor:
        assert asyncio.run(found(executor)) == "late_0"


def test_the_command_of_this_process_is_its_interpreter_with_its_arguments(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "argv", [__file__, "--flag"])
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)  # not started by -m, as pytest may be
    command = compat.this_command()
    assert (command[0], command[-2:]) == (sys.executable, [__file__, "--flag"])


def test_a_reloaded_process_is_known_by_its_environment(monkeypatch: pytest.MonkeyPatch):
    assert not compat.is_reloaded()
    for name, value in compat.environment_of_reloaded().items():
        monkeypatch.setenv(name, value)
    assert compat.is_reloaded()


def test_code_runs_until_it_changes(monkeypatch: pytest.MonkeyPatch):
    """What comes after a change is tested with a worker, in tests/worker/test_processes.py."""
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


numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)


def nested(some):
    return st.lists(some, max_size=3) | st.dictionaries(st.text(), some, max_size=3)


PLAIN = st.recursive(st.none() | st.booleans() | numbers | st.text(), nested)


@pytest.mark.parametrize("ensure_ascii", [True, False])
@settings(max_examples=30)
@given(value=PLAIN)
def test_json_is_written_as_by_the_standard_library(ensure_ascii, value):
    expected = json.dumps(value, ensure_ascii=ensure_ascii, separators=(",", ":"))
    assert compat.json_writer(ensure_ascii)(value) == expected


def test_what_json_cannot_say_is_refused_and_it_is_written_without_the_encoder_in_c_too(monkeypatch):
    for value in (math.nan, math.inf, {1, 2}, object()):
        with pytest.raises((ValueError, TypeError)):
            compat.json_writer(ensure_ascii=False)([value])
    monkeypatch.setattr("json.encoder.c_make_encoder", None)
    assert compat.json_writer(ensure_ascii=False)({"a": [1, "ü"]}) == '{"a":[1,"ü"]}'


SEEN: list[bool] = []


class Probe:
    """Records where its construction finds a discard, and whether that is what frees it."""

    def __init__(self):
        _, self.discard = discard_after_call(sys._getframe(1)) or (None, None)
        SEEN.append(self.discard is not None)

    def __del__(self):
        if self.discard is not None:
            SEEN.append(is_discarding(self.discard))


@pytest.mark.parametrize(("source", "seen"), [
    ("Probe()", [True, True]), ("def made():\n return Probe()\nmade()", [True, True]),
    ("value = Probe()", [False]), ("kept.append(Probe())", [False]),
    ("kept.extend(made() for made in [Probe])", [False]), ("kept.extend(map(lambda: Probe(), []))", []),
    # the called function keeps it, and it is freed elsewhere
    ("def made(_):\n return Probe()\nkept.extend(map(made, [1]))\nkept.clear()", [True, False]),
])  # fmt: skip
def test_a_value_is_discarded_by_an_expression_statement_and_nowhere_else(source, seen):
    SEEN.clear()
    exec(source, {"Probe": Probe, "kept": []})
    assert seen == SEEN


def test_receivers_of_a_signal_are_told_from_those_that_are_known():
    def own(**keywords: object) -> None: ...
    def other(**keywords: object) -> None: ...

    signal = Signal()
    signal.connect(own)
    assert not compat.has_other_receivers(signal, {id(own)})
    signal.connect(other, sender=Signal)
    assert compat.has_other_receivers(signal, {id(own)})


@pytest.mark.django_db
def test_blocks_and_commit_callbacks_of_a_connection_can_be_seen():
    outside = len(compat.blocks_of(connection))
    with transaction.atomic(), transaction.atomic():
        assert len(compat.blocks_of(connection)) == outside + 2
        assert compat.commits_on_exit(connection)
        transaction.on_commit(print)
        transaction.on_commit(len, robust=True)
        waiting = compat.commit_callbacks(connection)
        assert waiting == compat.take_commit_callbacks(connection) == [(print, False), (len, True)]
        assert compat.take_commit_callbacks(connection) == []


@pytest.mark.django_db(transaction=True)
def test_a_durable_block_begins_inside_a_block_like_that_of_a_test_case():
    with compat.as_of_test_case(transaction.atomic()), transaction.atomic(durable=True):
        assert len(compat.blocks_of(connection)) == 2


@pytest.mark.django_db(transaction=True)
def test_a_manual_transaction_is_told_from_one_that_commits():
    transaction.set_autocommit(False)
    try:
        with transaction.atomic():
            assert not compat.commits_on_exit(connection)
        transaction.rollback()
    finally:
        transaction.set_autocommit(True)


@pytest.mark.django_db(transaction=True)
def test_an_error_in_a_block_spoils_the_transaction():
    with transaction.atomic():
        assert not compat.is_broken(connection)
        with suppress(ZeroDivisionError), transaction.atomic(savepoint=False):
            raise ZeroDivisionError
        assert compat.is_broken(connection)
        transaction.set_rollback(False)


@pytest.mark.django_db(transaction=True)
def test_a_connection_is_kept_open_or_outlives_its_age():
    connection.ensure_connection()
    compat.keep_open(connection)
    connection.close_if_unusable_or_obsolete()
    assert connection.connection is not None
    compat.outlive(connection)
    connection.close_if_unusable_or_obsolete()
    assert connection.connection is None


@pytest.mark.django_db
def test_wrappers_of_statements_are_a_list():
    seen = []

    def wrapper(execute, *arguments):
        seen.append(arguments[0])
        return execute(*arguments)

    compat.statement_wrappers(connection).append(wrapper)
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    finally:
        compat.statement_wrappers(connection).remove(wrapper)
    assert seen == ["SELECT 1"]


def test_the_frame_of_a_caller_is_found():
    def ask():
        return compat.calling_frame(1)

    assert ask().f_code is sys._getframe().f_code


@pytest.mark.django_db(transaction=True)
def test_a_form_of_the_admin_is_answered_without_its_transaction(admin_user, rf):
    within = []

    class Admin(ModelAdmin):
        def get_form(self, *args, **kwargs):
            within.append(connection.in_atomic_block)
            return super().get_form(*args, **kwargs)

    request = rf.post("/")
    request.user, request._dont_enforce_csrf_checks = admin_user, True
    for answer in (Admin.changeform_view, compat.changeform_without_transaction):
        assert "adminform" in answer(Admin(Order, site), request, None, "", None).context_data
    assert {*within[: len(within) // 2]} == {True}
    assert {*within[len(within) // 2 :]} == {False}
