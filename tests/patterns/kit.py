"""What the tests of several patterns need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django_ayework.models import Work
from django_ayework.testing import drain, time_travel


def run_for(seconds: float, step: float = 60.0, *, raises: bool = True) -> None:
    """Run everything that becomes due within this time."""
    drain(raises=raises)
    for _ in range(int(seconds / step)):
        time_travel(step)
        drain(raises=raises)


def only(type: Any, **values: Any) -> Work:
    """Return the one work of a type."""
    return Work.objects.get(type=type.name, **values)


def statuses() -> dict[str, str]:
    """Return the status of every work by the last part of its type; gates are called ``dependency``."""
    found = Work.objects.order_by("queued_at", "id").values_list("type", "status")
    return {type.rpartition(".")[2].rpartition("/")[2]: status for type, status in found}


def failing(act: Callable[..., Any], error: Exception, times: int = 10**6) -> Callable[..., Any]:
    """Return a function that raises the first so many times, and then does what ``act`` does."""
    calls = iter(range(times))

    def call(*args: Any, **kwargs: Any) -> Any:
        if next(calls, None) is not None:
            raise error
        return act(*args, **kwargs)

    return call


def answer_lost(act: Callable[..., Any], times: int = 10**6) -> Callable[..., Any]:
    """Return a function that does what ``act`` does; its first answers are lost."""
    calls = iter(range(times))

    def call(*args: Any, **kwargs: Any) -> Any:
        done = act(*args, **kwargs)
        if next(calls, None) is not None:
            raise ConnectionError("the line is dead")
        return done

    return call
