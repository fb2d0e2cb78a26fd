"""The middlewares around a handler. Plain and async ones go together in any order, as in Django.

A middleware of the other kind is adapted: an async one around a plain handler runs on an event loop of its
own, a plain one around an async handler in the work's thread, which it holds until the handler has ended.
Handlers run where they would run without it.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

from asgiref.sync import async_to_sync, iscoroutinefunction, sync_to_async

from django_ayework.conf import get_settings, imported
from django_ayework.define.context import Context
from django_ayework.define.middleware import Middleware, enrich
from django_ayework.define.plans import forgetting
from django_ayework.define.registry import AnyWorkType

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
