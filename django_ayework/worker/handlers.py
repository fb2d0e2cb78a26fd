"""Calling a handler: middlewares around it, what it leaves on its thread, and what its return value means."""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Callable
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
from django_ayework.flow.settle import Settlement
from django_ayework.store.connections import has_connected, left_behind
from django_ayework.store.rows import WorkRow
from django_ayework.worker.interruption import forget_connection

# --- middleware ---
# The middlewares around a handler. Plain and async ones go together in any order, as in Django.
#
# A middleware of the other kind is adapted: an async one around a plain handler runs on an event loop of
# its
# own, a plain one around an async handler in the work's thread, which it holds until the handler has
# ended.
# Handlers run where they would run without it.

Call = Callable[[], Any]


def middlewares_of(work_type: AnyWorkType) -> list[Middleware]:
    """Return what surrounds a type's handler, the outermost first: the settings' before the type's own."""
    return [*get_settings().middleware, *map(resolved, work_type.settings.middleware)]


def resolved(middleware: Middleware | str) -> Middleware:
    """Return a middleware given as a callable, as its dotted path, or as a class to make it with."""
    return made(middleware) if isinstance(middleware, (str, type)) else middleware


@functools.cache
def made(middleware: str | type) -> Middleware:
    """Import or build a middleware, once."""
    return cast(Middleware, imported(middleware))


def surrounded(call: Call, middlewares: list[Middleware], context: Context) -> Any:
    """Call a plain handler within its middlewares."""
    for middleware in reversed(middlewares):
        call = layer(middleware, context, call)
    return call()


async def asurrounded(call: Call, middlewares: list[Middleware], context: Context) -> Any:
    """Await an async handler within its middlewares."""
    for middleware in reversed(middlewares):
        call = async_layer(middleware, context, call)
    return await call()


def layer(middleware: Middleware, context: Context, inner: Call) -> Call:
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


# --- leaks ---
# What a handler leaves on its thread's connections: it costs that handler only, and not the next one.

logger = logging.getLogger("django_ayework")


def leave_clean(load: object) -> None:
    """Replace connections of this thread that its last attempt has left inside a transaction, say.

    What was written there and not committed is rolled back. The attempt keeps its outcome: its handler has
    returned, and whatever else it did is done.
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
    """Close this thread's connections, as it ends with its work; warn of what the work has left on them."""
    leave_clean(load)
    connections.close_all()


# --- outcome ---
# From what a handler returned to what is to be written.


def settlement_of(work_type: AnyWorkType, context: Context, row: WorkRow, returned: object) -> Settlement:
    """Turn what the handler returned into what is to be written; what cannot be stored fails the attempt."""
    require_plain(work_type, returned)
    require_none_dropped(work_type, row)
    if work_type.settings.then is None and is_all_it_says(returned, context):
        return Settlement(row, success_of_value(returned, row, work_type))
    return Settlement(row, success_from(plan_of(returned, context, is_strict(work_type)), row))


def is_strict(work_type: AnyWorkType) -> bool:
    """Tell whether what a handler built and did not use fails the attempt."""
    own = work_type.settings.strict_return
    return get_settings().strict_return if own is None else own


def require_none_dropped(work_type: AnyWorkType, row: WorkRow) -> None:
    """Raise when the handler built a work and dropped it, for it would silently do nothing."""
    if watch.dropped and (dropped := watch.dropped.pop(row.id, None)) and is_strict(work_type):
        raise InvalidInstruction(
            f"the handler of {work_type.name!r} built {dropped[0]} that was not queued; write enqueue(…) "
            "around it, or put it into the list of a returned ctx.queue(…).",
            id=row.id,
        )


def require_plain(work_type: AnyWorkType, returned: Any) -> None:
    """Raise when a handler returned a coroutine that it did not await."""
    if isinstance(returned, CoroutineType):
        name = returned.__qualname__.rpartition(".")[2]
        returned.close()
        if work_type.is_async:
            raise InvalidInstruction(
                f"the handler of {work_type.name!r} returned a coroutine that it did not await; "
                f"write return await {name}(…)."
            )
        raise InvalidInstruction(
            f"the handler of {work_type.name!r} is a plain function that returned a coroutine; "
            f"declare it with async def, and write return await {name}(…)."
        )


def require_plain_act(work_type: AnyWorkType, stage: str, returned: Any) -> None:
    """Raise when what was given to ``ctx.aprepare`` or ``ctx.acomplete`` returned a coroutine."""
    if isinstance(returned, CoroutineType):
        name = returned.__qualname__.rpartition(".")[2]
        returned.close()
        raise InvalidInstruction(
            f"{work_type.name}: ctx.a{stage}({name}) expects a plain function, as Django's transactions "
            f"are for plain code, and {name}() returned a coroutine; write it with def."
        )
