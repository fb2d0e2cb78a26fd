"""The framework of tasks that is there: that of Django, or before Django 6.0 its backport.

All other modules take its names from here. With both installed it is Django's: a task that is declared by the
backport is then of Django's class, too, as the backend says which class tasks have.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias

from django_ayework.documentation import documented

if TYPE_CHECKING:
    from django.dispatch import Signal
    from django.tasks import signals, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
    from django.utils.json import normalize_json

    task_enqueued: Signal
    task_started: Signal
    task_finished: Signal

    AnyTask: TypeAlias = Task[..., Any]
    AnyResult: TypeAlias = TaskResult[..., Any]
else:
    try:
        if find_spec("django.tasks"):
            import django.tasks as framework
        else:
            import django_tasks as framework
    except ModuleNotFoundError as missing:
        raise documented(
            ImportError("Django has tasks from 6.0 on; for an older one install django-ayework[tasks]."),
            "package-missing",
        ) from missing
    NAME = framework.__name__
    base = import_module(f"{NAME}.base")
    exceptions = import_module(f"{NAME}.exceptions")
    signals = import_module(f"{NAME}.signals")
    import_module(f"{NAME}.checks")  # registers the system check

    task_backends = framework.task_backends
    BaseTaskBackend = import_module(f"{NAME}.backends.base").BaseTaskBackend
    Task, TaskContext, TaskError = base.Task, base.TaskContext, base.TaskError
    AnyTask, AnyResult = base.Task, base.TaskResult
    TaskResult, TaskResultStatus = base.TaskResult, base.TaskResultStatus
    normalize_json = base.normalize_json
    InvalidTask = getattr(exceptions, "InvalidTask", None) or exceptions.InvalidTaskError
    TaskResultDoesNotExist = exceptions.TaskResultDoesNotExist
    task_enqueued, task_started = signals.task_enqueued, signals.task_started
    task_finished = signals.task_finished

__all__ = [
    "AnyResult",
    "AnyTask",
    "BaseTaskBackend",
    "InvalidTask",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "normalize_json",
    "signals",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]
