"""Private and undocumented parts of CPython, asgiref, Django and its drivers, each behind one function.

Every comment names the versions against which the part was checked; ``tests/test_compat.py`` has a test per
part. Django is imported where it is used, as parts of the package that know nothing of it import this module.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json.encoder
import os
import sys
import threading
import time
from collections.abc import Callable, Collection
from opcode import opmap
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from asgiref.sync import ThreadSensitiveContext
    from django.contrib.admin import ModelAdmin
    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.dispatch import Signal
    from django.http import HttpResponse


def after_fork_in_child(callback: Callable[[], object]) -> None:
    """Call this in each forked child, before anything else runs there: locks may be held, threads are gone.

    Systems without fork never call it.
    """
    surround_forks(after_in_child=callback)


def surround_forks(**callbacks: Callable[[], object]) -> None:
    """Call these at each fork, as ``os.register_at_fork()`` does; systems without fork never call them."""
    # CPython 3.11 to 3.15: documented, but missing on Windows.
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**callbacks)


def before_threads_end(callback: Callable[[], object]) -> None:
    """Call this when the interpreter ends, while threads can still be started and executors still work."""
    # CPython 3.11 to 3.15: threading._register_atexit, which concurrent.futures uses to end its own threads.
    # The list is gone through backwards; atexit comes after that.
    getattr(threading, "_register_atexit", atexit.register)(callback)


def json_writer(ensure_ascii: bool) -> Callable[[Any], str]:
    """Return a function that writes plain values as compact JSON; it refuses NaN and Infinity."""
    encoder = json.JSONEncoder(
        ensure_ascii=ensure_ascii, check_circular=False, allow_nan=False, separators=(",", ":")
    )
    # CPython 3.11 to 3.15: json.encoder.c_make_encoder, None elsewhere. JSONEncoder.encode() makes a new one
    # for every value, which takes longer than to write a short input.
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return encoder.encode
    escape = json.encoder.encode_basestring_ascii if ensure_ascii else json.encoder.encode_basestring
    chunks_of = make(None, encoder.default, escape, None, ":", ",", False, False, False)
    return lambda value: "".join(chunks_of(value, 0))


_reading_frames = threading.Lock()


def frames_of_thread(thread: int) -> list[FrameType]:
    """Return the frames of another thread, the innermost first; none if there is no such thread."""
    # CPython 3.11 to 3.15: sys._current_frames. To read frames makes objects, which may start a garbage
    # collection, and that may let other threads run. CPython then looks at memory that is gone, or waits for
    # ever (its issues 106883 and 111363). So the collector is off meanwhile.
    frames: list[FrameType] = []
    with _reading_frames:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            frame = sys._current_frames().get(thread)
            while frame is not None:
                frames.append(frame)
                frame = frame.f_back
        finally:
            if was_enabled:
                gc.enable()
    return frames


def set_async_exception(thread: int, kind: type[BaseException] | None) -> None:
    """Let a class of exception be raised in a thread before its next bytecode; None takes it back."""
    # CPython 3.11 to 3.15: PyThreadState_SetAsyncExc.
    value = ctypes.py_object() if kind is None else ctypes.py_object(kind)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), value)


def has_thread(context: ThreadSensitiveContext) -> bool:
    """Tell whether ``sync_to_async`` has started a thread in this context."""
    # asgiref 3.8 to 3.13: the executors of contexts, which a context removes when it ends.
    from asgiref.sync import SyncToAsync

    return context in SyncToAsync.context_to_thread_executor


def hand_over(context: ThreadSensitiveContext, executor: Executor) -> None:
    """Let an executor run what tasks call with ``sync_to_async`` that go on after this context has ended."""
    # asgiref 3.8 to 3.13: see has_thread(). Such a context would get a thread of its own that nothing ends.
    from asgiref.sync import SyncToAsync

    SyncToAsync.context_to_thread_executor[context] = executor


def this_command() -> list[str]:
    """Return the command line by which this process was started, to run it once more."""
    # Django 5.2 to 6.1: undocumented, used by its own autoreloader.
    from django.utils.autoreload import get_child_arguments

    return [str(argument) for argument in get_child_arguments()]


#: The exit status by which a process of Django's autoreloader asks to be started again (Django 5.2 to 6.1).
CHANGED = 3


def is_reloaded() -> bool:
    """Tell whether Django's autoreloader has started this process, rather than is about to start one."""
    # Django 5.2 to 6.1: undocumented name of an environment variable.
    from django.utils.autoreload import DJANGO_AUTORELOAD_ENV

    return os.environ.get(DJANGO_AUTORELOAD_ENV) == "true"


def environment_of_reloaded() -> dict[str, str]:
    """Return the environment of a process that the autoreloader starts."""
    # Django 5.2 to 6.1: see is_reloaded().
    from django.utils.autoreload import DJANGO_AUTORELOAD_ENV

    return {**os.environ, DJANGO_AUTORELOAD_ENV: "true"}


def run_until_changed(act: Callable[[], object]) -> None:
    """Do this in a thread; end the process with the status ``CHANGED`` when code has changed."""
    # Django 5.2 to 6.1: undocumented, used by runserver. It installs a handler of SIGTERM.
    from django.utils.autoreload import run_with_reloader

    run_with_reloader(act)


def close_pool(connection: BaseDatabaseWrapper) -> None:
    """Close the pool that a connection comes from, if Django keeps one for it."""
    # Django 5.2 to 6.1: DatabaseWrapper.close_pool of PostgreSQL's backend, undocumented.
    backend: Any = connection
    if connection.settings_dict.get("OPTIONS", {}).get("pool"):
        backend.close_pool()


def blocks_of(connection: BaseDatabaseWrapper) -> list[Any]:
    """Return the ``transaction.atomic()`` blocks that a connection is inside of, the outermost first."""
    # Django 5.2 to 6.1: DatabaseWrapper.atomic_blocks, undocumented.
    blocks: list[Any] = connection.atomic_blocks
    return blocks


def as_of_test_case(block: Any) -> Any:
    """Let ``atomic(durable=True)`` begin inside a block of ``transaction.atomic()``, as in a TestCase."""
    # Django 5.2 to 6.1: Atomic._from_testcase, undocumented, which TestCase sets on its own blocks.
    block._from_testcase = True
    return block


def commits_on_exit(connection: BaseDatabaseWrapper) -> bool:
    """Tell whether the end of the outermost ``atomic()`` commits; not so after ``set_autocommit(False)``."""
    # Django 5.2 to 6.1: DatabaseWrapper.commit_on_exit, undocumented.
    return bool(connection.commit_on_exit)


def is_broken(connection: BaseDatabaseWrapper) -> bool:
    """Tell whether an error has spoilt the transaction of a connection; outside of one, too."""
    # Django 5.2 to 6.1: transaction.get_rollback() reads DatabaseWrapper.needs_rollback in a block only.
    return bool(connection.needs_rollback)


def keep_open(connection: BaseDatabaseWrapper) -> None:
    """Let ``close_if_unusable_or_obsolete()`` keep a connection, however old it is."""
    # Django 5.2 to 6.1: DatabaseWrapper.close_at, undocumented.
    connection.close_at = None


def outlive(connection: BaseDatabaseWrapper) -> None:
    """Let ``close_if_unusable_or_obsolete()`` close a connection."""
    # Django 5.2 to 6.1: see keep_open().
    connection.close_at = 0.0


def is_outlived(connection: BaseDatabaseWrapper) -> bool:
    """Tell whether a connection is older than its ``CONN_MAX_AGE``."""
    # Django 5.2 to 6.1: see keep_open().
    return connection.close_at is not None and time.monotonic() >= connection.close_at


def had_error(connection: BaseDatabaseWrapper) -> bool:
    """Tell whether the database has raised an error since the last check, except one of the data."""
    # Django 5.2 to 6.1: DatabaseWrapper.errors_occurred, undocumented. Django pings such a connection.
    return connection.errors_occurred


class CommitCallback(NamedTuple):
    """A function of ``transaction.on_commit()``, and whether its errors are logged only."""

    run: Callable[[], object]
    robust: bool


def commit_callbacks(connection: BaseDatabaseWrapper) -> list[CommitCallback]:
    """Return the functions that wait for the commit of a connection."""
    # Django 5.2 to 6.1: DatabaseWrapper.run_on_commit, undocumented: savepoints, function, robust.
    waiting: list[Any] = connection.run_on_commit
    return [CommitCallback(function, robust) for _savepoints, function, robust in waiting]


def take_commit_callbacks(connection: BaseDatabaseWrapper) -> list[CommitCallback]:
    """Remove the functions that wait for the commit of a connection, and return them."""
    # Django 5.2 to 6.1: see commit_callbacks().
    taken = commit_callbacks(connection)
    connection.run_on_commit = []
    return taken


def make_robust(connection: BaseDatabaseWrapper, first: int) -> None:
    """Let errors be logged only of functions that wait for a commit, from the function of this number on."""
    # Django 5.2 to 6.1: see commit_callbacks().
    waiting: list[Any] = connection.run_on_commit
    waiting[first:] = [(savepoints, function, True) for savepoints, function, _robust in waiting[first:]]


def statement_wrappers(connection: BaseDatabaseWrapper) -> list[Any]:
    """Return the list of what wraps the statements of a connection; it may be appended to."""
    # Django 5.2 to 6.1: DatabaseWrapper.execute_wrapper() is a context manager; its list is undocumented.
    wrappers: list[Any] = connection.execute_wrappers
    return wrappers


def calling_frame(depth: int) -> FrameType:
    """Return a frame of this thread: 1 is that of the caller of the function that asks."""
    # CPython 3.11 to 3.15: sys._getframe.
    return sys._getframe(depth + 1)


# Discarded values, by the instructions of CPython 3.11 to 3.15: POP_TOP discards the value of an
# expression statement, RETURN_VALUE ends a function. An instruction has two bytes, and so has each of its
# caches, which are zeros in ``co_code``. A frame is the same object while it runs.
POP_TOP, RETURN_VALUE = opmap["POP_TOP"], opmap["RETURN_VALUE"]
INSTRUCTION = 2


#: CPython 3.14 and newer look up ``__enter__`` by it, and then call it as any other method. Older ones have
#: no such instruction there.
LOAD_SPECIAL = opmap.get("LOAD_SPECIAL")


def enters_block(frame: FrameType) -> bool:
    """Tell whether a running frame calls an ``__enter__``, and an exception would be raised after the call.

    The block is entered then, and never left: a lock stays taken. Only CPython 3.14 and newer raise there.
    """
    before = frame.f_lasti - INSTRUCTION
    return before >= 0 and frame.f_code.co_code[before] == LOAD_SPECIAL


class Discard(NamedTuple):
    """The instruction of a running frame that discards what a call returns."""

    frame: int
    position: int


def discard_after_call(frame: FrameType) -> tuple[FrameType, Discard] | None:
    """Return where the result of the call at which ``frame`` is will be discarded, by it or by its caller.

    That is the frame, and its instruction. None if the next instruction uses the result, or if the
    interpreter is not CPython.
    """
    if sys.implementation.name != "cpython":
        return None
    instruction, position = next_instruction(frame)
    if instruction == RETURN_VALUE and frame.f_back is not None:
        frame = frame.f_back
        instruction, position = next_instruction(frame)
    return (frame, Discard(id(frame), position)) if instruction == POP_TOP else None


def next_instruction(frame: FrameType) -> tuple[int, int]:
    """Return the instruction that follows the present one and its caches, and its position."""
    code = frame.f_code.co_code
    for position in range(frame.f_lasti + INSTRUCTION, len(code), INSTRUCTION):
        if code[position]:
            return code[position], position
    return 0, len(code)


def is_discarding(discard: Discard) -> bool:
    """Tell, in the ``__del__`` of an object, whether this instruction is what frees the object."""
    try:
        frame = sys._getframe(2)
    except ValueError:  # the process ends
        return False
    return discard == (id(frame), frame.f_lasti)


def has_other_receivers(signal: Signal, own: Collection[int]) -> bool:
    """Tell whether a signal has other receivers than those with these ids."""
    # Django 5.2 to 6.1: Signal.receivers, whose entries begin with the ids of a receiver and of its sender.
    return any(entry[0][0] not in own for entry in signal.receivers)


def changeform_without_transaction(model_admin: ModelAdmin[Any], *args: Any) -> HttpResponse:
    """Answer as the ``changeform_view()`` of an admin, outside of the transaction that it begins."""
    # Django 5.2 to 6.1: ModelAdmin._changeform_view, undocumented.
    response: HttpResponse = model_admin._changeform_view(*args)  # type: ignore[attr-defined]
    return response
