"""The forms of a handler that calls one function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django_ayework import Context, work

Act = Callable[[], Any]


def declare(handler: Any, **options: Any) -> Any:
    return work(**{"name": "attempts.case", **options})(handler)


def plain(act: Act, **options: Any) -> Any:
    return declare(lambda: act(), **options)


def with_context(act: Act, **options: Any) -> Any:
    def handler(ctx: Context) -> Any:
        return act()

    return declare(handler, **options)


def atomic(act: Act, **options: Any) -> Any:
    return plain(act, atomic=True, **options)


def in_prepare(act: Act, **options: Any) -> Any:
    def handler(ctx: Context) -> Any:
        with ctx.prepare():
            return act()

    return declare(handler, **options)


def in_complete(act: Act, **options: Any) -> Any:
    def handler(ctx: Context) -> Any:
        with ctx.complete():
            return act()

    return declare(handler, **options)


def in_acomplete(act: Act, **options: Any) -> Any:
    async def handler(ctx: Context) -> Any:
        return await ctx.acomplete(act)

    return declare(handler, **options)
