"""Around a handler: its middlewares, its returned value, its interruption, and the connections it leaves."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from types import CoroutineType, FrameType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from asgiref.sync import async_to_sync, iscoroutinefunction, sync_to_async
from django.db import Error, connections

from django_ayework.compat import blocks_of, frames_of_thread, set_async_exception
from django_ayework.conf import get_settings, imported
from django_ayework.define.context import AbortReason, AbortSignal, Context, enrich
from django_ayework.define.options import Middleware
from django_ayework.define.plans import forgetting, is_all_it_says, plan_of
from django_ayework.define.requests import watch
from django_ayework.define.types import AnyWorkType
from django_ayework.documentation import logged
from django_ayework.errors import InvalidInstruction
from django_ayework.flow.context_services import EngineServices, assignment_of
from django_ayework.flow.events import report
from django_ayework.flow.outcomes import success_from, success_of_value
from django_ayework.flow.settle import Settlement
from django_ayework.store.connections import defuse, has_connected, left_behind

if TYPE_CHECKING:
    from django_ayework.worker.in_flight import Delivery


logger = logging.getLogger("django_ayework")

# Plain and async ones go together in any order, as in Django. A middleware of the other kind is adapted: an
# async one around a plain handler runs on an event loop of its own, a plain one around an async handler in
# the work's thread until the handler has ended. Handlers run where they would run without it.

Call = Callable[[], Any]


def middlewares_of(work_type: AnyWorkType) -> list[Middleware]:
    """Return the middlewares of a type, the outermost first: the settings' before the type's own."""
    return [*get_settings().middleware, *map(resolved, work_type.settings.middleware)]


def resolved(middleware: Middleware | str) -> Middleware:
    """Return a middleware given as a callable, as its dotted path, or as a class to make it with."""
    return made(middleware) if isinstance(middleware, (str, type)) else middleware


@functools.cache
def made(middleware: str | type) -> Middleware:
    """Import or build a middleware, once."""
    return cast(Middleware, imported(middleware))


def surrounded(call: Call, middlewares: list[Middleware], context: Context, awaits: bool = False) -> Call:
    """Return the call of a handler within its middlewares; with ``awaits`` its result is to be awaited."""
    layer = async_layer if awaits else plain_layer
    for middleware in reversed(middlewares):
        call = layer(middleware, context, call)
    return call


def plain_layer(middleware: Middleware, context: Context, inner: Call) -> Call:
    """Return a call of a middleware around a plain call."""

    def call_next(**extra: Any) -> Any:
        enrich(context, extra)
        with forgetting(context, len(context.built)):
            return inner()

    if is_async(middleware):
        return partial(async_to_sync(middleware), context, sync_to_async(call_next))
    return partial(middleware, context, call_next)


def async_layer(middleware: Middleware, context: Context, inner: Call) -> Callable[[], Awaitable[Any]]:
    """Return a call of a middleware around an async call."""

    async def call_next(**extra: Any) -> Any:
        enrich(context, extra)
        with forgetting(context, len(context.built)):
            return await inner()

    def call_next_in_time(**extra: Any) -> Any:
        # The cancellation of a task does not reach its thread before that calls back into the event loop.
        if context.signal.reason not in (None, AbortReason.ERROR):
            raise asyncio.CancelledError
        return async_to_sync(call_next)(**extra)

    if is_async(middleware):
        return partial(middleware, context, call_next)
    return partial(sync_to_async(middleware), context, call_next_in_time)


def is_async(middleware: Middleware) -> bool:
    """Tell whether a middleware is to be awaited, be it a function or an object that is called."""
    return iscoroutinefunction(middleware) or iscoroutinefunction(type(middleware).__call__)


def settlement_of(
    work_type: AnyWorkType, delivery: Delivery, returned: object, context: Context | None = None
) -> Settlement:
    """Return the settlement of a returned value. Raises when it cannot be carried out or stored.

    Without a context the handler was given none, so it can have said nothing through it.
    """
    row = delivery.row
    require_plain(work_type, returned)
    own = work_type.settings.strict_return
    is_strict = get_settings().strict_return if own is None else own
    if watch.dropped and (dropped := watch.dropped.pop(row.id, None)) and is_strict:
        raise InvalidInstruction(
            f"the handler of {work_type.name!r} built {dropped[0]} that was not queued; write enqueue(…) "
            "around it, or put it into the list of a returned ctx.queue(…).",
            id=row.id,
            code="work-not-queued",
        )
    if work_type.settings.then is None and is_all_it_says(returned, context):
        return Settlement(row, success_of_value(returned, row, work_type), seconds=delivery.seconds)
    context = context or Context(assignment_of(row), EngineServices())
    success = success_from(plan_of(returned, context, is_strict), row)
    return Settlement(row, success, seconds=delivery.seconds)


def require_plain(work_type: AnyWorkType, returned: object) -> None:
    """Raise when a handler returned a coroutine that it did not await."""
    if isinstance(returned, CoroutineType):
        name = closed(returned)
        if work_type.is_async:
            raise InvalidInstruction(
                f"the handler of {work_type.name!r} returned a coroutine that it did not await; "
                f"write return await {name}(…).",
                code="coroutine-not-awaited",
            )
        raise InvalidInstruction(
            f"the handler of {work_type.name!r} is a plain function that returned a coroutine; "
            f"declare it with async def, and write return await {name}(…).",
            code="coroutine-not-awaited",
        )


def require_plain_act(work_type: AnyWorkType, stage: str, returned: object) -> None:
    """Raise when the function given to ``ctx.aprepare`` or ``ctx.acomplete`` returned a coroutine."""
    if isinstance(returned, CoroutineType):
        name = closed(returned)
        raise InvalidInstruction(
            f"{work_type.name}: ctx.a{stage}({name}) expects a plain function, as Django's transactions "
            f"are for plain code, and {name}() returned a coroutine; write it with def.",
            code="stage-not-plain",
        )


def closed(coroutine: CoroutineType[Any, Any, Any]) -> str:
    """Close a coroutine that nothing will await; return the name of its function."""
    coroutine.close()
    return coroutine.__qualname__.rpartition(".")[2]


def require_outputs(work_type: AnyWorkType, returned: object, expected: int) -> Sequence[Any]:
    """Return the outputs of a batch. Raises InvalidInstruction unless there is one per item."""
    require_plain(work_type, returned)
    if not isinstance(returned, (list, tuple)):
        found = f"a non-list ({returned!r:.80})"
    elif len(returned) != expected:
        found = f"{len(returned)} outputs"
    else:
        return returned
    raise InvalidInstruction(
        f'batch "{work_type.name}" returned {found} for {expected} inputs; '
        "return a list with one output per item, in the same order.",
        code="batch-outputs",
    )


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
                )  # fmt: skip
                forget_connection(connection)
        except Exception as error:
            report(error, "queue", f"the connection {connection.alias!r} could not be looked at after {load}")


def end_connections(load: object) -> None:
    """Close this thread's connections, as the thread ends with its work; warn of transactions left open."""
    leave_clean(load)
    connections.close_all()


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
        self._lock = threading.Lock()
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
                with self._lock:
                    self._thread = threading.get_ident()
                return handler()
            finally:
                self._close()
        except BaseException:
            self._close()  # the one exception that was left may have come before this had been done
            raise

    def _close(self) -> None:
        """End the time in which an exception may be set; take back one that was set and has not come."""
        with self._lock:
            self._thread = None
            set_async_exception(threading.get_ident(), None)

    def interrupt(self) -> None:
        """Interrupt the handler from another thread if it runs, unless that was done a moment ago.

        The watchdog repeats this until the handler ends.
        """
        with self._lock:
            now = time.monotonic()
            if self._thread is None or now - max(self._interrupted_at, self._signal.heeded_at) < AGAIN_AFTER:
                return
            frames = handler_frames(self._thread)
            if frames and (not any(map(is_delicate, frames)) or self._has_no_patience(now)):
                self._interrupted_at = now
                set_async_exception(self._thread, class_like(self._error(), self._note_arrival))

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


class Cancellation:
    """Cancels the current task once all works of its handler are asked to stop, or their time is over.

    The signal fires before, so the handler that meets the CancelledError can read the reason. With the reason
    ``error`` the work is still its own, and its handler goes on. A handler that has met the reason as
    an exception of the signal is left to end by itself for a while.
    """

    def __init__(self, deliveries: Sequence[Delivery], timeout: float | None) -> None:
        #: Whether the task was cancelled here.
        self.was_requested = False
        self._deliveries = deliveries
        self._timeout = timeout
        self._going_on = {delivery.row.id for delivery in deliveries}
        self._is_open = False

    def __enter__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._timer = None if self._timeout is None else self._loop.call_later(self._timeout, self._expire)
        self._is_open = True
        for delivery in self._deliveries:
            delivery.on_abort = self._note
            if delivery.signal.reason is not None:
                self._note(delivery, delivery.signal.reason)

    def __exit__(self, *error: object) -> None:
        self._is_open = False
        for delivery in self._deliveries:
            delivery.on_abort = None
        if self._timer is not None:
            self._timer.cancel()
        if self.was_requested and self._task is not None:
            self._task.uncancel()

    def _note(self, delivery: Delivery, reason: AbortReason) -> None:
        """Note that a work is asked to stop, in any thread."""
        if reason is AbortReason.ERROR:
            return
        self._going_on.discard(delivery.row.id)
        if not self._going_on:
            with suppress(RuntimeError):  # the loop was closed, so the handler has ended
                self._loop.call_soon_threadsafe(self._cancel)

    def _expire(self) -> None:
        """Ask all works to stop, as the time is over."""
        for delivery in self._deliveries:
            delivery.abort(AbortReason.TIMEOUT)

    def _cancel(self) -> None:
        """Cancel the task, once and on its loop, unless the handler has ended."""
        if not self._is_open or self.was_requested or self._task is None:
            return
        heeded_at = max(delivery.signal.heeded_at for delivery in self._deliveries)
        patience = heeded_at + AGAIN_AFTER - time.monotonic()
        if patience > 0:
            self._loop.call_later(patience, self._cancel)
            return
        self.was_requested = True
        self._task.cancel()


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
    """Close a connection for good: a pool lends it to nobody."""
    try:
        if getattr(connection, "pool", None) is not None and connection.connection is not None:
            connection.connection.close()
        connection.close()
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
