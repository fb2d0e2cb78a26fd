"""Around a handler: its middlewares, its returned value, and the cancellation of an async one."""

from __future__ import annotations

import asyncio
import functools
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import CoroutineType
from typing import Any, TypeVar, cast

from asgiref.sync import async_to_sync, iscoroutinefunction, sync_to_async

from django_ayework.conf import get_settings, imported
from django_ayework.define.context import AbortReason, Context, enrich
from django_ayework.define.options import Middleware
from django_ayework.define.plans import forgetting, is_only_a_value, plan_of
from django_ayework.define.requests import watch
from django_ayework.define.types import AnyWorkType
from django_ayework.errors import Defer, InvalidInstruction
from django_ayework.flow.context_services import EngineServices, assignment_of
from django_ayework.flow.hooks import report
from django_ayework.flow.outcomes import retry_input_of, success_from, success_of_value
from django_ayework.flow.settle import Settlement
from django_ayework.rules.formatting import error_text
from django_ayework.rules.retry import decide_failure
from django_ayework.store.database import clock
from django_ayework.store.rows import WorkRow
from django_ayework.worker import interruption
from django_ayework.worker.in_flight import Delivery

# Plain and async ones go together in any order, as in Django. A middleware of the other kind is adapted: an
# async one around a plain handler runs on an event loop of its own, a plain one around an async handler in
# the work's thread until the handler has ended. Handlers run where they would run without it.

Call = Callable[[], Any]
T = TypeVar("T")


def middlewares_of(work_type: AnyWorkType) -> list[Middleware]:
    """Return the middlewares of a type, the outermost first: the settings' before the type's own."""
    own = (made(each) if isinstance(each, (str, type)) else each for each in work_type.settings.middleware)
    return [*get_settings().middleware, *own]


@functools.cache
def made(middleware: str | type) -> Middleware:
    """Return a middleware that is given as its dotted path, or as a class to make it with; made once."""
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

    async def awaited_next(**extra: Any) -> Any:
        return await in_thread(partial(call_next, **extra))

    if is_async(middleware):
        return partial(async_to_sync(middleware), context, awaited_next)
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
    return partial(in_thread, partial(middleware, context, call_next_in_time))


async def in_thread(act: Callable[[], T]) -> T:
    """Run a part of an async handler in the work's thread.

    An error is raised here, not passed on by a future: asyncio would close the whole attempt because of a
    GeneratorExit, and would wait for ever after a StopIteration.
    """
    return uncaught(await sync_to_async(caught)(act))


async def to_the_end(act: Callable[[], T]) -> T:
    """Run the last step as ``in_thread`` does. A cancellation comes too late: the handler has ended."""
    step = asyncio.ensure_future(sync_to_async(caught)(act))
    while not step.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(step)
    return uncaught(step.result())


def caught(act: Callable[[], T]) -> tuple[T | None, BaseException | None]:
    """Return the result of a function, or its exception."""
    try:
        return act(), None
    except BaseException as error:
        return None, error


def uncaught(ended: tuple[T | None, BaseException | None]) -> T:
    """Return the result that ``caught`` has noted, or raise the exception."""
    returned, error = ended
    if error is not None:
        raise error
    return returned  # type: ignore[return-value]


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
            "or await aenqueue(…) around it, or put it into the list of a returned ctx.queue(…).",
            id=row.id,
            code="work-not-queued",
        )
    if work_type.settings.then is None and is_only_a_value(returned, context):
        return Settlement(row, success_of_value(returned, row, work_type), seconds=delivery.seconds)
    context = context or Context(assignment_of(row), EngineServices())
    success = success_from(plan_of(returned, context, is_strict), row)
    return Settlement(row, success, seconds=delivery.seconds)


#: Seconds, and up to twice as many, until a work is tried again whose attempt could not begin.
PUT_OFF_FOR = 2.0


def put_off(row: WorkRow, error: BaseException, why: str) -> Settlement:
    """Put off a work for a reason that concerns all works alike: that costs no attempt.

    The database's server is full or away, or the project's pool is empty.
    """
    delay = PUT_OFF_FOR * random.uniform(1.0, 2.0)  # noqa: S311  # spreads them
    report(error, "queue", f"work {row.id} {why}; it is tried again in {delay:.0f} s", brief=True)
    decision = decide_failure(Defer(delay=delay), None, retry_input_of(row, clock.now()))
    return Settlement(row, replace(decision, error=f"put off, as it {why}: {error_text(error)}"))


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
        patience = heeded_at + interruption.AGAIN_AFTER - time.monotonic()
        if patience > 0:
            self._loop.call_later(patience, self._cancel)
            return
        self.was_requested = True
        self._task.cancel()
