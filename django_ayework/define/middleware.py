"""Middlewares: functions of the project that surround the handler of every attempt."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from django_ayework.define.context import Context
from django_ayework.errors import InvalidOption

logger = logging.getLogger("django_ayework")

#: ``def m(ctx, call_next): return call_next(**extra)``; or ``async def``, with ``await call_next(**extra)``.
Middleware: TypeAlias = Callable[[Context, Callable[..., Any]], Any]

#: What a context says itself; no extra goes by these names.
RESERVED = frozenset(name for name in {*dir(Context), "built", "extra", "signal"} if not name.startswith("_"))


def check_middleware(value: object, name: str) -> tuple[Middleware | str, ...]:
    """Return middlewares, given as a list of callables or dotted paths, the outermost first."""
    if not isinstance(value, (list, tuple)):
        raise InvalidOption(f"expected {name} to be a list of callables or dotted paths, got: {value!r}.")
    for position, middleware in enumerate(value):
        if not callable(middleware) and not (isinstance(middleware, str) and "." in middleware):
            raise InvalidOption(
                f"expected {name}[{position}] to be a callable or the dotted path of one, "
                f"got: {middleware!r}."
            )
    return tuple(value)


def enrich(context: Context, extra: Mapping[str, Any]) -> None:
    """Add what a middleware passes on to ``ctx.extra``; it wins over what outer ones passed.

    Names of the context's own are left out, and the log says so.
    """
    if not extra:
        return
    if taken := sorted(RESERVED.intersection(extra)):
        logger.warning(
            "A middleware around %s passed on %s, which the context says itself; choose other names.",
            context.type,
            ", ".join(map(repr, taken)),
        )
    added = {name: value for name, value in extra.items() if name not in RESERVED}
    context.extra = MappingProxyType({**context.extra, **added})
