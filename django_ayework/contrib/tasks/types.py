"""Tasks as types of work: each is a type of its own, named by the module and the name of its function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from django_ayework.contrib.tasks.calls import Call, name_of, options_of, tasks
from django_ayework.contrib.tasks.framework import AnyTask
from django_ayework.define.context import Context
from django_ayework.define.decorators import registered
from django_ayework.define.types import AnyWorkType, WorkType, registry
from django_ayework.errors import ImproperWork

#: Is called with each event of a task; a path, as it imports models.
ON_EVENT = "django_ayework.contrib.tasks.works.on_event"
#: The signature of every handler: the context, then the stored call by name.
SIGNATURE = inspect.Signature(
    [
        inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD),
        *inspect.signature(Call).parameters.values(),
    ]
)


def register(task: AnyTask) -> None:
    """Make a task's function a type of work, once. Raises ImproperWork when it cannot be one."""
    function: Callable[..., Any] = task.func
    name = name_of(function)
    found = registry.find(name)
    if found is not None and name not in tasks:
        raise ImproperWork(
            f"expected no work to have the name of the task {name!r}, but {found.origin} has it; "
            'give that another: @work(name="...").',
            code="task-name-taken",
        )
    if found is None or tasks[name].func is not function:
        work_type = type_of(function, name)
        tasks[name] = task  # first: another thread that finds the type looks for the task
        registered(work_type)


def type_of(function: Callable[..., Any], name: str) -> AnyWorkType:
    """Return the type of work that calls this function."""
    settings = replace(options_of(function).settings, on_event=ON_EVENT)
    return WorkType(handler_of(function), name, settings)


def handler_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the handler that calls a function, async for an async one; its parameters are those of ``Call``.

    ``functools.wraps`` would give it the parameters of the function, too.
    """
    handler: Callable[..., Any] = partial(acall if inspect.iscoroutinefunction(function) else call, function)
    copied = {name: getattr(function, name) for name in ("__module__", "__name__", "__qualname__", "__doc__")}
    for name, value in {**copied, "__signature__": SIGNATURE}.items():
        setattr(handler, name, value)
    return handler


def call(function: Callable[..., Any], ctx: Context, **stored: Any) -> Any:
    """Run a plain function with a stored call."""
    from django_ayework.contrib.tasks import works

    return works.run(function, ctx.id, Call(**stored))


async def acall(function: Callable[..., Any], ctx: Context, **stored: Any) -> Any:
    """Run an async function with a stored call."""
    from django_ayework.contrib.tasks import works

    return await works.arun(function, ctx.id, Call(**stored))
