"""Calls of tasks as they are stored, the known tasks, and their options by ``@task_options``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from inspect import Parameter
from typing import Any, TypeVar

from django_ayework.contrib.tasks.framework import AnyTask
from django_ayework.define.decorators import require_inputs, require_plain
from django_ayework.define.options import WorkSettings, checked_settings
from django_ayework.define.types import POSITIONAL_KINDS, required_inputs
from django_ayework.documentation import type_error
from django_ayework.errors import InvalidOption, by_other_name, did_you_mean
from django_ayework.rules.identity import Dedup
from django_ayework.rules.signatures import path_of, signature_of

#: Parameters that can be given by name.
NAMED_KINDS = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)

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


def call_of(function: Callable[..., Any], stored: Mapping[str, Any]) -> Call:
    """Return a stored call. The code, which may be newer, says whether the function takes the context."""
    return Call(**{**stored, "takes_context": tasks[name_of(function)].takes_context})


def call_differences(function: Callable[..., Any], call: Call) -> tuple[list[str], list[str]]:
    """Return the required parameters that a call does not fill, and what it gives that is not taken.

    An argument by position that is too many is named by its number.

    >>> def pay(order, currency): ...
    >>> call_differences(pay, Call([1], {"note": ""}, "default", takes_context=False))
    (['currency'], ['note'])
    >>> call_differences(pay, Call([1, "EUR", ""], {"order": 2}, "default", takes_context=False))
    ([], ['no. 3', 'order'])
    """
    signature = signature_of(function)
    kinds = {name: parameter.kind for name, parameter in signature.parameters.items()}
    by_place = [name for name, kind in kinds.items() if kind in POSITIONAL_KINDS]
    by_name = [name for name, kind in kinds.items() if kind in NAMED_KINDS]
    number = len(call.args) + call.takes_context
    filled = by_place[:number]
    free = [name for name in by_name if name not in filled]
    missing = [
        name
        for name in required_inputs(signature)
        if name not in filled and not (name in free and name in call.kwargs)
    ]
    takes_more = Parameter.VAR_POSITIONAL in kinds.values()
    excess = () if takes_more else range(len(by_place), number)
    refused = by_name if Parameter.VAR_KEYWORD in kinds.values() else call.kwargs
    return missing, [
        *(f"no. {place + 1 - call.takes_context}" for place in excess),
        *(name for name in call.kwargs if name in refused and name not in free),
    ]


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of the type whose works call this function."""
    return path_of(function)


def task_with(task: AnyTask, **changes: Any) -> AnyTask:
    """Return a copy of a task without validating it: a stored task may no longer be valid."""
    copy: AnyTask = object.__new__(type(task))
    for each in fields(task):
        object.__setattr__(copy, each.name, changes.get(each.name, getattr(task, each.name)))
    return copy


# Options

F = TypeVar("F", bound=Callable[..., Any])

#: The options of ``@work`` that a task may have. Its queue and priority are those of ``@task``.
SHARED = (
    *("retry", "timeout", "atomic", "max_running", "expires"),
    *("interrupt", "weight", "retention", "redact"),
)
#: Where the options are kept: on the function, as a task takes no attributes.
MARK = "_ayework_task_options"


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """The options of one task: the settings of its type, and by what a task is known as queued already."""

    settings: WorkSettings = field(default_factory=WorkSettings)
    dedup: Dedup | Callable[..., Dedup | str | None] | None = None

    def dedup_of(self, args: list[Any], kwargs: Mapping[str, Any]) -> Dedup | None:
        """Return what makes these arguments the same task, if anything does."""
        found = self.dedup(*args, **kwargs) if callable(self.dedup) else self.dedup
        return Dedup(found) if isinstance(found, str) else found


#: What to write for options that are Django's, and for those of other packages.
MEANINGS = by_other_name(
    {
        "@task(queue_name=…)": ("queue", "queue_name"),
        "@task(priority=…)": ("priority",),
        ".using(run_after=…)": ("delay", "run_at", "run_after", "countdown", "eta"),
    }
)


def task_options(function: Any = None, /, **options: Any) -> Callable[[F], F]:
    """Give a task options of its type of work. Write it below ``@task``, directly above the function.

    ``retry``, ``timeout``, ``atomic``, ``max_running``, ``expires``, ``interrupt``, ``weight``,
    ``retention`` and ``redact`` are those of ``@work``. ``dedup`` is a ``Dedup``, or a function that is given
    the arguments of the task and returns a ``Dedup``, a key, or None. Under another backend the options have
    no effect.

    Raises TypeError for an unknown option and for a decorator in the wrong place, and InvalidOption or
    ImproperWork for an option that cannot be used.

    Example::

        @task()
        @task_options(retry=Retry(attempts=5), timeout=60)
        def send_receipt(order_id): ...
    """
    if function is not None:
        raise type_error(
            "task-options",
            f"expected @task_options with options, got: {function!r}. Write @task_options(retry=…), or leave "
            "it out.",
        )
    for name in options:
        if name not in (*SHARED, "dedup"):
            hint = did_you_mean(name, (*SHARED, "dedup"), MEANINGS)
            raise type_error("task-options", f"{name!r} is not an option of @task_options.{hint}")
    dedup = usable_dedup(options.pop("dedup", None))
    given = TaskOptions(checked_settings(options, "@task_options"), dedup)

    def mark(function: F) -> F:
        require_function(function)
        require_plain(function, given.settings)
        setattr(function, MARK, given)
        return function

    return mark


def stored_paths(function: Callable[..., Any], paths: Iterable[str]) -> tuple[str, ...]:
    """Return where stored calls of a function have what these paths of ``redact=`` lead to.

    Arguments by position have no names, so all of them are hidden where one of them may be secret.

    >>> def pay(order, /, *extra, card, **more): ...
    >>> stored_paths(pay, ["card.number"]), stored_paths(pay, ["order"]), stored_paths(pay, ["extra"])
    (('kwargs.card.number',), ('args',), ('args',))
    >>> stored_paths(lambda password: None, ["password"]), stored_paths(pay, ["more"])
    (('args', 'kwargs.password'), ('kwargs',))
    """
    signature = signature_of(function)
    require_inputs(name_of(function), signature, paths)
    found: list[str] = []
    for path in paths:
        known = signature.parameters.get(path.partition(".")[0])
        kind = Parameter.KEYWORD_ONLY if known is None else known.kind
        if kind in (*POSITIONAL_KINDS, Parameter.VAR_POSITIONAL):
            found.append("args")
        if kind in NAMED_KINDS:
            found.append(f"kwargs.{path}")
        if kind is Parameter.VAR_KEYWORD:
            found.append("kwargs")
    return tuple(dict.fromkeys(found))


def usable_dedup(value: Any) -> Any:
    """Return a ``dedup`` that can be used. Raises InvalidOption."""
    if value is None or isinstance(value, Dedup) or callable(value):
        return value
    raise InvalidOption(
        f"expected dedup to be a Dedup(...) or a function, got: {value!r}.", code="task-options"
    )


def require_function(function: Any) -> None:
    """Raise TypeError for a task, which has the decorators in the wrong order, and for all but functions."""
    if not inspect.isfunction(function):
        raise type_error(
            "task-options",
            f"expected @task_options to decorate a function, got: {function!r}. "
            "Write @task() in the line above @task_options(…).",
        )


def options_of(function: Callable[..., Any]) -> TaskOptions:
    """Return the options that a function was marked with."""
    found: TaskOptions = getattr(function, MARK, None) or TaskOptions()
    return found
