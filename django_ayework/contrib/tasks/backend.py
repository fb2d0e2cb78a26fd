"""The backend that ``TASKS`` names, the type of work that it makes of each task, and the tasks of the source.

The modules to import come from the file system and from the settings, never from a stored work.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import cached_property, partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured

from django_ayework.contrib.tasks.calls import (
    Call,
    call_differences,
    call_of,
    name_of,
    options_of,
    stored_paths,
    task_with,
    tasks,
)
from django_ayework.contrib.tasks.framework import (
    AnyResult,
    AnyTask,
    BaseTaskBackend,
    InvalidTask,
    Task,
    task_backends,
)
from django_ayework.define.context import Context
from django_ayework.define.decorators import registered
from django_ayework.define.options import checked
from django_ayework.define.requests import WorkRequest
from django_ayework.define.types import POSITIONAL_KINDS, WorkType, bind, registry
from django_ayework.documentation import documented, logged, refused_as, with_entry
from django_ayework.errors import ImproperWork, InvalidOption, did_you_mean
from django_ayework.logs import logger
from django_ayework.rules.formatting import error_text
from django_ayework.rules.retry import Retry, retry_of
from django_ayework.rules.signatures import signature_of

#: Said of a backend whose app is not installed, by the system check and by the error of its first task.
MISSING_APP = "TASKS[{!r}] needs the app django_ayework."
ADD_APP = "Add 'django_ayework' to INSTALLED_APPS."
#: The keys of OPTIONS.
OPTIONS = ("RETRY", "MODULES")


class AyeworkBackend(BaseTaskBackend):
    """Queues tasks as works of django_ayework, in the current transaction; its workers run them.

    ``OPTIONS`` may have ``RETRY``, the retry policy of tasks without one, as a mapping of its fields or as a
    ``Retry``; and ``MODULES``, a list of modules outside of installed apps that declare tasks.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    @cached_property
    def retry(self) -> Retry:
        """The retry policy of OPTIONS. Raises TypeError or ValueError for one that cannot be used."""
        return retry_of(self.options.get("RETRY") or {}, "OPTIONS['RETRY']")

    def validate_task(self, task: AnyTask) -> None:
        """Check a task, and make its function a type of work.

        Raises InvalidTask; ImproperlyConfigured if the app is not installed, once Django has started.
        """
        if apps.ready and not apps.is_installed("django_ayework"):
            text = f"{MISSING_APP.format(self.alias)} {ADD_APP}"
            raise documented(ImproperlyConfigured(text), "tasks-app-missing")
        is_relative = isinstance(task.run_after, timedelta)
        super().validate_task(task_with(task, run_after=None) if is_relative else task)
        try:
            checked({"queue": task.queue_name})
            register(task)
        except (ImproperWork, InvalidOption) as refusal:
            raise refused_as(InvalidTask, refusal) from refusal

    def enqueue(self, task: AnyTask, args: Any, kwargs: Any) -> Any:
        """Queue a task in the current transaction; return its result, which is not there yet.

        Raises InvalidTask; TypeError and ValueError for arguments that cannot be stored.
        """
        from django_ayework.contrib.tasks import works

        self.validate_task(task)
        return works.enqueue(task, args, kwargs, self.alias, self.retry)

    def get_result(self, result_id: str) -> AnyResult:
        """Read the result of any task as it stands. Raises TaskResultDoesNotExist."""
        from django_ayework.contrib.tasks import works

        return works.get_result(result_id)

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        """E012: the app is not installed. E013: queues or an option that cannot be used, or are unknown."""
        found: list[CheckMessage] = []
        if not apps.is_installed("django_ayework"):
            found.append(Error(MISSING_APP.format(self.alias), hint=ADD_APP, id="ayework.E012"))
        wrong = [
            *(("QUEUES", *each) for each in self._wrong_queues()),
            *(("OPTIONS", *each) for each in self._wrong_options()),
        ]
        for key, text, hint in wrong:
            text = f"TASKS[{self.alias!r}][{key!r}] {text}"
            found.append(Error(text, hint=hint or None, id="ayework.E013"))
        return [with_entry(message) for message in found]

    def _wrong_queues(self) -> Iterable[tuple[str, str]]:
        """Yield the errors in QUEUES, each with a hint."""
        given = settings.TASKS.get(self.alias, {}).get("QUEUES", ())
        if isinstance(given, str):  # whose letters Django takes for queues
            yield f"is no list: {given!r}.", 'Write a list, such as ["default"].'
            return
        for queue in given:
            try:
                checked({"queue": queue})
            except InvalidOption as refusal:
                yield f"has a queue that cannot be used: {refusal}", ""

    def _wrong_options(self) -> Iterable[tuple[str, str]]:
        """Yield the errors in OPTIONS, each with a hint."""
        given: object = self.options
        if not isinstance(given, Mapping):
            yield f"is no mapping: {given!r}.", 'Write a mapping, such as {"RETRY": {"attempts": 3}}.'
            return
        for key in self.options:
            if key not in OPTIONS:
                yield f"has the unknown key {key!r}.", did_you_mean(str(key).upper(), OPTIONS).strip()
        for key in OPTIONS:
            if key in settings.TASKS.get(self.alias, {}):
                yield f"does not have the key {key!r}, which stands beside it.", f"Move {key!r} into OPTIONS."
        try:
            _ = self.retry
        except (TypeError, ValueError) as wrong:
            yield f"has a RETRY that cannot be used: {wrong}", ""
        modules = self.options.get("MODULES", ())
        if not isinstance(modules, (list, tuple)):
            yield f"has MODULES that is no list: {modules!r}.", 'Write a list, such as ["shop.jobs"].'
            return
        for module in modules:
            if not is_there(module):
                yield f"has MODULES with {module!r}, which is not there.", "Correct the name of the module."


def is_there(module: object) -> bool:
    """Tell whether a module can be found."""
    try:
        return isinstance(module, str) and find_spec(module) is not None
    except (ImportError, ValueError):
        return False


# Tasks as types of work: each is a type of its own, named by the module and the name of its function

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
        work_type = TaskType(function, name, task.queue_name)
        tasks[name] = task  # first: another thread that finds the type looks for the task
        registered(work_type)


class TaskType(WorkType[..., Any, Any]):
    """The type of work that calls a task's function."""

    def __init__(self, function: Callable[..., Any], name: str, queue: str) -> None:
        given = options_of(function).settings
        redact = stored_paths(function, given.redact)
        settings = replace(given, on_event=ON_EVENT, queue=queue, redact=redact)
        super().__init__(handler_of(function), name, settings)
        self.function = function

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The parameters of the function, without the context."""
        own = signature_of(self.function).parameters
        return dict(list(own.items())[tasks[self.name].takes_context :])

    def by_parameter(self, stored: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments of a stored call by these parameters."""
        names = (name for name, each in self.parameters.items() if each.kind in POSITIONAL_KINDS)
        return {**dict(zip(names, stored.get("args", ()), strict=False)), **stored.get("kwargs", {})}

    def build(self, arguments: Mapping[str, Any]) -> WorkRequest[Any, Any, Any]:
        """Build a request from a stored call; raise TypeError if the function does not take its arguments."""
        request = super().build(arguments)
        call = call_of(self.function, request.input)
        taken = inspect.Signature(list(self.parameters.values()))
        bind(taken, self.name, tuple(call.args), call.kwargs)
        return request

    def differences(self, given: Mapping[str, Any]) -> tuple[list[str], list[str]]:
        """Compare what is stored with a call, and its arguments with the parameters of the function."""
        missing, unexpected = super().differences(given)
        if missing or unexpected:
            return missing, unexpected
        return call_differences(self.function, call_of(self.function, given))


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

    return works.run(function, ctx.id, call_of(function, stored))


async def acall(function: Callable[..., Any], ctx: Context, **stored: Any) -> Any:
    """Run an async function with a stored call."""
    from django_ayework.contrib.tasks import works

    return await works.arun(function, ctx.id, call_of(function, stored))


FRAMEWORKS = ("django.tasks", "django_tasks")
MENTIONED = re.compile(rb"django_tasks|django\.tasks|from\s+django\s+import[^#\n]*\btasks\b")


def discover() -> None:
    """Import the modules that declare tasks, register the tasks, log and note those that fail."""
    backends = [each for each in task_backends.all() if isinstance(each, AyeworkBackend)]
    if not backends:
        return
    registry.queues.update(*(backend.queues for backend in backends))
    listed = (module for backend in backends for module in backend.options.get("MODULES", ()))
    for module in dict.fromkeys([*listed, *found_modules()]):
        try:
            register_all(module)
        except Exception as error:
            registry.failed[module] = error_text(error)
            logger.exception(
                "The module %s, which declares tasks, could not be imported. %s",
                module,
                logged("task-module-not-imported"),
            )


def register_all(module: str) -> None:
    """Import a module and register its tasks, those of other backends too: ``using()`` may choose ours."""
    for value in list(vars(import_module(module)).values()):
        if isinstance(value, Task):
            register(value)


def found_modules() -> Iterator[str]:
    """Yield the modules of apps that take ``task`` from a framework, except tests and migrations."""
    from django_ayework.flow.startup_checks import module_level, modules_below, parsed

    for config in apps.get_app_configs():
        if config.name.partition(".")[0] not in ("django", "django_ayework", "django_tasks"):
            for module, file in modules_below(config.name, config.path):
                if any(map(takes_tasks, module_level(parsed(file, MENTIONED)))):
                    yield module


def takes_tasks(node: ast.AST) -> bool:
    """Tell whether a statement imports a decorator of tasks.

    >>> [takes_tasks(ast.parse(line).body[0]) for line in ("from django.tasks import task", "import os")]
    [True, False]
    """
    if isinstance(node, ast.ImportFrom):
        names = {each.name for each in node.names}
        return (node.module in FRAMEWORKS and bool(names & {"task", "*"})) or (
            node.module == "django" and "tasks" in names
        )
    return isinstance(node, ast.Import) and any(each.name in FRAMEWORKS for each in node.names)
