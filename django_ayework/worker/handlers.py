"""Around a handler: its middlewares, the meaning of its returned value, and the connections it leaves."""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from types import CoroutineType
from typing import Any, cast

from asgiref.sync import async_to_sync, iscoroutinefunction, sync_to_async
from django.db import connections

from django_ayework.conf import get_settings, imported
from django_ayework.define.context import Context
from django_ayework.define.plans import forgetting, is_all_it_says, plan_of
from django_ayework.define.registry import AnyWorkType
from django_ayework.define.requests import watch
from django_ayework.define.types import Middleware, enrich
from django_ayework.errors import InvalidInstruction
from django_ayework.flow.events import report
from django_ayework.flow.outcomes import success_from, success_of_value
from django_ayework.flow.services import EngineServices, assignment_of
from django_ayework.flow.settle import Settlement
from django_ayework.store.connections import has_connected, left_behind
from django_ayework.store.rows import WorkRow
from django_ayework.worker.interruption import forget_connection

logger = logging.getLogger("django_ayework")

# --- middlewares ------------------------------------------------------------------------------------------
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

    if is_async(middleware):
        return partial(middleware, context, call_next)
    return partial(sync_to_async(middleware), context, async_to_sync(call_next))


def is_async(middleware: Middleware) -> bool:
    """Tell whether a middleware is to be awaited, be it a function or an object that is called."""
    return iscoroutinefunction(middleware) or iscoroutinefunction(type(middleware).__call__)


# --- returned values --------------------------------------------------------------------------------------


def settlement_of(
    work_type: AnyWorkType, row: WorkRow, returned: object, context: Context | None = None
) -> Settlement:
    """Return the settlement of a returned value. Raises when it cannot be carried out or stored.

    Without a context the handler was given none, so it can have said nothing through it.
    """
    require_plain(work_type, returned)
    own = work_type.settings.strict_return
    is_strict = get_settings().strict_return if own is None else own
    if watch.dropped and (dropped := watch.dropped.pop(row.id, None)) and is_strict:
        raise InvalidInstruction(
            f"the handler of {work_type.name!r} built {dropped[0]} that was not queued; write enqueue(…) "
            "around it, or put it into the list of a returned ctx.queue(…).",
            id=row.id,
        )
    if work_type.settings.then is None and is_all_it_says(returned, context):
        return Settlement(row, success_of_value(returned, row, work_type))
    context = context or Context(assignment_of(row), EngineServices())
    success = success_from(plan_of(returned, context, is_strict), row)
    if success.drafts is not None:
        success.drafts.encode()
    return Settlement(row, success)


def require_plain(work_type: AnyWorkType, returned: object) -> None:
    """Raise when a handler returned a coroutine that it did not await."""
    if isinstance(returned, CoroutineType):
        name = closed(returned)
        if work_type.is_async:
            raise InvalidInstruction(
                f"the handler of {work_type.name!r} returned a coroutine that it did not await; "
                f"write return await {name}(…)."
            )
        raise InvalidInstruction(
            f"the handler of {work_type.name!r} is a plain function that returned a coroutine; "
            f"declare it with async def, and write return await {name}(…)."
        )


def require_plain_act(work_type: AnyWorkType, stage: str, returned: object) -> None:
    """Raise when the function given to ``ctx.aprepare`` or ``ctx.acomplete`` returned a coroutine."""
    if isinstance(returned, CoroutineType):
        name = closed(returned)
        raise InvalidInstruction(
            f"{work_type.name}: ctx.a{stage}({name}) expects a plain function, as Django's transactions "
            f"are for plain code, and {name}() returned a coroutine; write it with def."
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
        "return a list with one output per item, in the same order."
    )


# --- connections ------------------------------------------------------------------------------------------
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
                    "The handler of %s left %s on the connection %r, which is closed: what was not committed "
                    "is rolled back.", load, left, connection.alias,
                )  # fmt: skip
                forget_connection(connection)
        except Exception as error:
            report(error, "queue", f"the connection {connection.alias!r} could not be looked at after {load}")


def end_connections(load: object) -> None:
    """Close this thread's connections, as the thread ends with its work; warn of transactions left open."""
    leave_clean(load)
    connections.close_all()
