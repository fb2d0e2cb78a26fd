"""Forms of a handler that calls one function: each declares it, with options of the type."""

import asyncio
from collections.abc import Callable
from functools import wraps
from typing import Any

from asgiref.sync import sync_to_async

from django_ayework import work

Form = Callable[..., Any]


def form(name: str, make: Callable[[Any], Any], **fixed: Any) -> Form:
    """Return the form whose handler this function makes of what it is to call."""

    def declared(act: Any, **options: Any) -> Any:
        return work(**{"name": "attempts.case", **fixed, **options})(make(act))

    declared.__name__ = name
    return declared


def awaited(function: Any) -> Any:
    """Return an async function that does the same."""

    @wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def awaited_later(act: Any) -> Any:
    async def handler():
        await asyncio.sleep(0)
        return act()

    return handler


def awaited_in_a_thread(act: Any) -> Any:
    async def handler():
        return await sync_to_async(act)()

    return handler


def within(stage: str) -> Form:
    """Return the form that acts in a stage of a plain handler."""

    def make(act):
        def handler(ctx):
            with getattr(ctx, stage)():
                return act()

        return handler

    return form(stage, make)


def awaiting(stage: str) -> Form:
    """Return the form that acts in a stage of an async handler."""

    def make(act):
        async def handler(ctx):
            return await getattr(ctx, stage)(act)

        return handler

    return form(stage, make)


declare = form("declare", lambda handler: handler)
plain = form("plain", lambda act: lambda: act())
with_context = form("with_context", lambda act: lambda ctx: act())
atomic = form("atomic", lambda act: lambda: act(), atomic=True)
in_async = form("in_async", awaited_later)
in_a_thread_of_async = form("in_a_thread_of_async", awaited_in_a_thread)
in_prepare, in_complete = within("prepare"), within("complete")
in_aprepare, in_acomplete = awaiting("aprepare"), awaiting("acomplete")
