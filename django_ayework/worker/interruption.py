"""The exception that another thread raises inside a handler, and the connections that a handler leaves."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, TypeVar

from django.db import Error, connections

from django_ayework.compat import blocks_of, enters_block, frames_of_thread, set_async_exception
from django_ayework.define.context import AbortSignal
from django_ayework.documentation import logged
from django_ayework.flow.hooks import fields_about, report
from django_ayework.logs import logger
from django_ayework.store.connections import (
    close_all_connections,
    close_for_good,
    defuse,
    has_connected,
    left_behind,
)

T = TypeVar("T")

#: Seconds until a handler that goes on all the same is interrupted again: it may have caught the exception,
#: or the exception came in a place where Python only prints it, such as a callback of a weak reference.
AGAIN_AFTER = 5.0
#: Places where an exception may leave a lock taken: between taking the lock, and the block that frees it.
DELICATE_NAMES = frozenset(
    {"__enter__", "__exit__", "enter_context", "acquire", "release", "_acquire_restore", "_release_save"}
    | {"__del__"}  # where it would only be printed
)
DELICATE_MODULES = frozenset({"logging", "importlib", "_frozen_importlib"})
#: Seconds that a handler is given to leave such a place, before it is interrupted there.
PATIENCE = 5.0
#: Seconds between two looks at whether another thread still sets an exception, which takes it microseconds.
PAUSE = 0.0005


class Interruption:
    """One call of a handler, which another thread may interrupt while it lasts.

    ``error`` makes the exception to raise once ``signal`` has fired.
    """

    def __init__(self, signal: AbortSignal, error: Callable[[], Exception]) -> None:
        #: The exception, once it was raised; None again when the attempt has ended. It and the handler's
        #: frames refer to each other: the garbage collector might find this circle hours later, and a
        #: connection that was just being opened would stay open until then.
        self.arrived: BaseException | None = None
        self._signal = signal
        self._error = error
        self._lock = threading.Lock()  # of those that interrupt; the handler's thread must not take it
        self._thread: int | None = None  # of the handler, while it runs
        self._interrupted_at = float("-inf")
        self._delicate_since: float | None = None

    def call(self, handler: Callable[[], T]) -> T:
        """Call the handler in its thread; deal with the thread's connections if it was interrupted.

        A handler that catches the exception may return, unless a transaction is open around it: nobody can
        tell what that would commit. An error of a database after the exception counts as the exception:
        drivers put errors of their own in its place, some without a word on where they come from.
        """
        try:
            returned = self._run(handler)
        except Exception as broken:
            if self.arrived is not None and is_of_database(broken):
                raise self._error() from broken
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
                self._thread = threading.get_ident()
                return handler()
            finally:
                self._close()
        except BaseException:
            self._close()  # the one exception that was left may have come before this had been done
            raise

    def _close(self) -> None:
        """End the time in which an exception may be set; take back one that was set and has not come.

        An exception that comes while a lock is taken may leave it taken, so this takes none: an interrupting
        thread takes its lock first, and then looks whether there still is a thread.
        """
        self._thread = None
        while self._lock.locked():
            time.sleep(PAUSE)
        set_async_exception(threading.get_ident(), None)

    def interrupt(self) -> None:
        """Interrupt the handler from another thread if it runs, unless that was done a moment ago.

        The watchdog repeats this until the handler ends.
        """
        with self._lock:
            thread, now = self._thread, time.monotonic()
            if thread is None or now - max(self._interrupted_at, self._signal.heeded_at) < AGAIN_AFTER:
                return
            frames = handler_frames(thread)
            if not frames or enters_block(frames[0]):
                return
            if not any(map(is_delicate, frames)) or self._has_no_patience(now):
                self._interrupted_at = now
                set_async_exception(thread, class_like(self._error(), self._note_arrival))

    def _note_arrival(self, exception: BaseException) -> None:
        self.arrived = exception

    def _has_no_patience(self, now: float) -> bool:
        """Tell whether the handler was found in delicate places for too long."""
        self._delicate_since = self._delicate_since or now
        return now - self._delicate_since >= PATIENCE


def handler_frames(thread: int) -> list[FrameType]:
    """Return the frames of the handler that a thread runs, the innermost first; none once it has ended."""
    frames: list[FrameType] = []
    for frame in frames_of_thread(thread):
        if frame.f_code is Interruption._run.__code__:
            is_over = frames and frames[-1].f_code is Interruption._close.__code__
            return [] if is_over else frames
        frames.append(frame)
    return []


def is_delicate(frame: FrameType) -> bool:
    """Tell whether an exception that is raised in this frame could leave a lock taken.

    By the time it is raised the thread may have moved on, so this makes harm rare, not impossible.
    """
    module = str(frame.f_globals.get("__name__", ""))
    return frame.f_code.co_name in DELICATE_NAMES or module.partition(".")[0] in DELICATE_MODULES


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
    """Close this thread's connections; return whether one was in a transaction, which is lost."""
    in_transaction = False
    for connection in connections.all(initialized_only=True):
        in_transaction |= connection.in_atomic_block
        close_connection(connection)
    return in_transaction


def close_connection(connection: Any) -> None:
    """Close a connection for good; an error is reported."""
    try:
        close_for_good(connection)
    except Exception as error:
        report(error, "queue", f"the connection {connection.alias!r} of a handler could not be closed")


def forget_connection(connection: Any) -> None:
    """Let this thread make a new connection instead: this one may be wrong about the state it is in."""
    for block in blocks_of(connection):
        defuse(block)
    close_connection(connection)
    del connections[connection.alias]


def forget_connections() -> None:
    """Let this thread make new connections, all of them."""
    for connection in connections.all(initialized_only=True):
        forget_connection(connection)


# A transaction that a handler leaves open costs this handler only, and not the next one in its thread.


def leave_clean(load: object) -> None:
    """Replace connections of this thread that its last attempt has left inside a transaction, say.

    Uncommitted writes there are rolled back. The attempt keeps its outcome: its handler has returned.
    """
    if not has_connected():
        return
    for connection in connections.all(initialized_only=True):
        try:
            if left := left_behind(connection):
                logger.warning(
                    "The handler of %s left %s on the connection %r, which is closed: uncommitted changes "
                    "are rolled back. %s", load, left, connection.alias, logged("connection-left-open"),
                    extra=fields_about(getattr(load, "row", None)),  # a batch has none
                )  # fmt: skip
                forget_connection(connection)
        except Exception as error:
            report(error, "queue", f"the connection {connection.alias!r} could not be looked at after {load}")


def end_connections(load: object) -> None:
    """Close this thread's connections, as the thread ends with its work; warn of transactions left open."""
    leave_clean(load)
    close_all_connections()
