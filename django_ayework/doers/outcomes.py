"""Running one function through a doer, and getting what it returns or raises."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from datetime import datetime
from typing import TypeVar

from django_ayework.documentation import type_error
from django_ayework.doers.base import Doer

T = TypeVar("T")


def run(
    doer: Doer,
    function: Callable[[], T],
    *,
    fairness: str | None = None,
    priority: int = 0,
    created_at: datetime | None = None,
    timeout: float | None = None,
) -> T:
    """Run a function in a thread of a doer when its limits allow; wait, and return what it returns.

    Raises what the function raises, and TimeoutError after ``timeout`` seconds; a function that has not
    started by then is not called. The other arguments are those of ``submit()``. Never call it from within a
    task of the same doer: that task may hold the place that the function waits for.

    >>> from django_ayework.doers.bounded import balanced
    >>> run(balanced(2), lambda: 6 * 7)
    42
    """
    future = submitted(doer, function, fairness, priority, created_at)
    try:
        return future.result(timeout)
    except TimeoutError:
        future.cancel()
        raise


async def arun(
    doer: Doer,
    function: Callable[[], T],
    *,
    fairness: str | None = None,
    priority: int = 0,
    created_at: datetime | None = None,
) -> T:
    """See run(). The function is a plain one; it is not called if its caller is cancelled before."""
    from asyncio import wrap_future  # which a process without async code need not load

    future = submitted(doer, function, fairness, priority, created_at, for_async=True)
    return await wrap_future(future)


def submitted(
    doer: Doer,
    function: Callable[[], T],
    fairness: str | None,
    priority: int,
    created_at: datetime | None,
    for_async: bool = False,
) -> Future[T]:
    """Submit a function; return the future of its outcome. One that was cancelled before does not run.

    No coroutine can raise StopIteration, and a future of asyncio may not end with it: ``for_async`` gives a
    RuntimeError instead, as Python does.
    """
    if not callable(function):
        raise type_error("doer-argument", f"expected a function without arguments, got: {function!r}.")
    future: Future[T] = Future()

    def task() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(function())
        except BaseException as error:
            if for_async and isinstance(error, StopIteration):
                error = RuntimeError(f"{function!r} raised StopIteration")
            future.set_exception(error)

    doer.submit(task, fairness, priority, created_at)
    return future
