"""The stored parts of enqueued tasks, and the known tasks by the names of their types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from django_ayework.contrib.tasks.framework import AnyTask

#: The first task that was built of each function, by the name of its type.
tasks: dict[str, AnyTask] = {}


@dataclass(frozen=True, slots=True)
class Call:
    """The stored part of an enqueued task: its arguments, and its ``Task``'s options besides the queue."""

    args: list[Any]
    kwargs: dict[str, Any]
    alias: str
    takes_context: bool
    run_after: str | None = None  # in ISO format


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of the type whose works call this function."""
    return f"{function.__module__}.{function.__qualname__}"


def task_with(task: AnyTask, **changes: Any) -> AnyTask:
    """Return a copy of a task without validating it: a stored task may no longer be valid."""
    copy: AnyTask = object.__new__(type(task))
    for each in fields(task):
        object.__setattr__(copy, each.name, changes.get(each.name, getattr(task, each.name)))
    return copy
