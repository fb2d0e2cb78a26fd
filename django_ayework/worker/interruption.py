"""Raising an abort inside the thread that runs a plain handler."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

from django.db import Error, connections

from django_ayework.define.context import AbortSignal
from django_ayework.flow.events import report
from django_ayework.store.connections import defuse

T = TypeVar("T")

#: Seconds until a handler that goes on all the same is interrupted again: it may have caught the exception,
#: or it came in a place where Python only prints exceptions, such as a callback of a weak reference.
AGAIN_AFTER = 5.0
#: Places where an exception may leave a lock taken: between taking it, and the block that frees it.
DELICATE_NAMES = frozenset(
    {"__enter__", "__exit__", "enter_context", "acquire", "release", "_acquire_restore", "_release_save"}
    | {"__del__"}  # where it would only be printed
)
DELICATE_MODULES = frozenset({"logging", "importlib", "_frozen_importlib"})
#: Seconds that a handler is given to leave such a place, before it is interrupted there.
PATIENCE = 5.0


class Interruption:
    """One call of a handler, which another thread may interrupt while it lasts.

    ``error`` makes the exception to raise once ``signal`` has fired.
    """

    def __init__(self, signal: AbortSignal, error: Callable[[], Exception]) -> None:
        self.arrived: BaseException | None = None  # the exception, once it was raised
        self._signal = signal
        self._error = error
        self._lock = threading.Lock()
        self._thread: int | None = None  # which runs the handler, while it does
        self._struck_at = float("-inf")
        self._delicate_since: float | None = None

    # --- in the thread of the handler ---------------------------------------------------------------------

    def call(self, handler: Callable[[], T]) -> T:
        """Call the handler; deal with the thread's connections if it was interrupted.

        One that catches the exception may return, unless a transaction is open around it: nobody can tell
        what that would commit. An error of a database after the exception counts as the exception: drivers
        put errors of their own in its place, some without a word on where they come from.
        """
        try:
            returned = self._run(handler)
        except Exception as broken:
            if self.arrived is not None and is_of_database(broken):
                raise self._error() from broken  # torn away from a connection, whatever the driver made of it
            raise
        finally:
            in_transaction = self.arrived is not None and close_connections()
        if in_transaction:
            raise self._error()
        return returned

    def _run(self, handler: Callable[[], T]) -> T:
        """Call the handler where an exception may be raised in it; when this ends, none can come any more."""
        try:
            try:
                with self._lock:
                    self._thread = threading.get_ident()
                return handler()
            finally:
                self._close()
        except BaseException:
            self._close()  # the one exception that was left may have come before this had been done
            raise

    def let_go(self) -> None:
        """Forget what arrived, and with it everything that the handler had in its hands.

        It is in a circle, which the garbage collector might find hours later: a connection that was just
        being opened would stay open until then.
        """
        self.arrived = None

    def _close(self) -> None:
        """End the time in which an exception may be set; take back one that was set and has not come."""
        with self._lock:
            self._thread = None
            set_exception(threading.get_ident(), None)

    # --- in another thread --------------------------------------------------------------------------------

    def strike(self) -> None:
        """Interrupt the handler if it runs, unless that was done a moment ago; made to be repeated."""
        with self._lock:
            now = time.monotonic()
            if self._thread is None or now - max(self._struck_at, self._signal.heeded_at) < AGAIN_AFTER:
                return
            frames = frames_of_handler(self._thread)
            if frames and (not any(map(is_delicate, frames)) or self._has_no_patience(now)):
                self._struck_at = now
                set_exception(self._thread, class_like(self._error(), self._note_arrival))

    def _note_arrival(self, exception: BaseException) -> None:
        self.arrived = exception

    def _has_no_patience(self, now: float) -> bool:
        """Tell whether the handler was found in delicate places for too long."""
        self._delicate_since = self._delicate_since or now
        return now - self._delicate_since >= PATIENCE


def frames_of_handler(thread: int) -> list[FrameType]:
    """Return the frames of the handler that a thread runs, the innermost first; none once it has ended."""
    frames: list[FrameType] = []
    with without_garbage_collection():
        frame: FrameType | None = sys._current_frames().get(thread)
        while frame is not None and frame.f_code is not Interruption._run.__code__:
            frames.append(frame)
            frame = frame.f_back
    is_over = frame is None or (frames and frames[-1].f_code is Interruption._close.__code__)
    return [] if is_over else frames


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Keep other threads from moving on in the middle of looking at their frames.

    Looking makes objects, which may start a collection; what is collected may let other threads run. CPython
    then looks at memory that is gone, or waits for ever (its issues 106883 and 111363).
    """
    with _looking:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if was_enabled:
                gc.enable()


_looking = threading.Lock()


def is_delicate(frame: FrameType) -> bool:
    """Tell whether an exception that is raised in this frame could leave a lock taken.

    By the time it is raised the thread may have moved on, so this makes harm rare, not impossible.
    """
    module = str(frame.f_globals.get("__name__", ""))
    return frame.f_code.co_name in DELICATE_NAMES or module.partition(".")[0] in DELICATE_MODULES


def set_exception(thread: int, kind: type[BaseException] | None) -> None:
    """Let a class of exception be raised in a thread before its next bytecode; None takes it back."""
    value = ctypes.py_object() if kind is None else ctypes.py_object(kind)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), value)


def class_like(error: Exception, note: Callable[[BaseException], None]) -> type[BaseException]:
    """Return a class whose instances are like this error; each is noted when it is made.

    Only a class can be raised in another thread.
    """
    kind = type(error)

    def make(self: Any) -> None:
        note(self)
        self.args = error.args
        vars(self).update(vars(error))

    return type(kind.__name__, (kind,), {"__init__": make, "__module__": kind.__module__})


def is_of_database(error: Exception) -> bool:
    """Tell whether an error comes from a database, or from a driver that Django was not asked about."""
    wrappers: Sequence[Any] = connections.all(initialized_only=True)
    return isinstance(error, (Error, *(wrapper.Database.Error for wrapper in wrappers)))


def close_connections() -> bool:
    """Close this thread's connections; tell whether one of them was in a transaction, which is lost."""
    in_transaction = False
    for connection in connections.all(initialized_only=True):
        in_transaction |= connection.in_atomic_block
        close_connection(connection)
    return in_transaction


def close_connection(connection: Any) -> None:
    """Close a connection for good."""
    try:
        if getattr(connection, "pool", None) is not None and connection.connection is not None:
            connection.connection.close()  # so that the pool lends it to nobody
        connection.close()
    except Exception as error:
        report(error, "queue", f"the connection {connection.alias!r} of a handler could not be closed")


def forget_connection(connection: Any) -> None:
    """Let this thread make a new connection instead: this one may be wrong about the state it is in."""
    for block in connection.atomic_blocks:
        defuse(block)
    close_connection(connection)
    del connections[connection.alias]


def forget_connections() -> None:
    """Let this thread make new connections: the old ones may be wrong about the state they are in."""
    for connection in connections.all(initialized_only=True):
        forget_connection(connection)
