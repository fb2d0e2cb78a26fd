"""Middlewares and handlers that note what ran, and ways to run them."""

from __future__ import annotations

from typing import Any

import pytest

from django_ayework import Context, Retry, WorkState, enqueue, work
from django_ayework.testing import drain, running_worker
from tests.attempts.conftest import ended

ONCE = Retry(attempts=1)

#: What ran, in order.
steps: list[str] = []


def plain(name: str, **extra: Any) -> Any:
    """A middleware that notes when it is entered and left."""

    def middleware(ctx: Context, call_next: Any) -> Any:
        steps.append(f"{name} before")
        try:
            return call_next(**extra)
        finally:
            steps.append(f"{name} after")

    return middleware


def awaited(name: str, **extra: Any) -> Any:
    """The same as an async function."""

    async def middleware(ctx: Context, call_next: Any) -> Any:
        steps.append(f"{name} before")
        try:
            return await call_next(**extra)
        finally:
            steps.append(f"{name} after")

    return middleware


def handler(ctx: Context) -> dict[str, Any]:
    steps.append("handler")
    return dict(ctx.extra)


async def ahandler(ctx: Context) -> dict[str, Any]:
    steps.append("handler")
    return dict(ctx.extra)


def run(function: Any, **options: Any) -> WorkState:
    """Declare a handler, queue it, run it; return its state."""
    options = {"name": "attempts.case", "retry": ONCE, **options}
    handle = enqueue(work(**options)(function)())
    drain(raises=False)
    state = handle.state()
    assert state is not None
    return state


def in_a_worker(function: Any, **options: Any) -> WorkState:
    """The same, run by a real worker."""
    handle = enqueue(work(name="attempts.case", retry=ONCE, **options)(function)())
    with running_worker(concurrency=2):
        return ended(handle)


both = pytest.mark.parametrize("function", [handler, ahandler])
