"""An attempt of a task: ``task_started`` is sent, then the function is called with its arguments."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django_ayework.contrib.tasks.announcements import Attempts, attempts, send
from django_ayework.contrib.tasks.calls import Call, tasks
from django_ayework.contrib.tasks.framework import AnyResult, TaskContext, normalize_json, task_started
from django_ayework.contrib.tasks.results import get_result, result_of
from django_ayework.worker.transactions import in_thread


def run(function: Callable[..., Any], id: str, call: Call) -> Any:
    """Call a plain function; return what JSON makes of its result. Raises TypeError for another result."""
    given = arguments(call, started(id, call))
    try:
        return normalize_json(function(*given, **call.kwargs))
    except BaseException as error:
        keep(attempts, id, error)
        raise


async def arun(function: Callable[..., Any], id: str, call: Call) -> Any:
    """Await an async function; see run()."""
    given = arguments(call, await in_thread(partial(started, id, call)))
    try:
        return normalize_json(await function(*given, **call.kwargs))
    except Exception as error:
        keep(attempts, id, error)
        raise


def keep(kept_of: Attempts, id: str, error: BaseException) -> None:
    """Keep what an attempt raised, for the signal of its end."""
    if (kept := kept_of.find(id)) is not None:
        kept.error = error


def started(id: str, call: Call) -> AnyResult:
    """Send ``task_started``; return the result that the attempt begins with."""
    kept = attempts.find(id)
    if kept is None:
        result = get_result(id)
    else:
        kept.call = call
        state = kept.state
        result = result_of(state, call, tasks[state.type]) if state.attempt <= 1 else get_result(id)
    send(task_started, result)
    return result


def arguments(call: Call, result: AnyResult) -> list[Any]:
    """Return the positional arguments, the context first if the task takes one."""
    return [TaskContext(task_result=result), *call.args] if call.takes_context else call.args
