"""The options of ``schedule()``, read and checked."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import date, datetime
from functools import partial
from typing import Any, TypeAlias, cast

from django_ayework.define.requests import GateRequest, WorkRequest
from django_ayework.define.seams import default_name
from django_ayework.define.work_type import WorkType
from django_ayework.errors import ImproperWork, InvalidOption, did_you_mean
from django_ayework.rules.cron import parse_cron
from django_ayework.rules.cron.moments import zone_of
from django_ayework.rules.durations import require_aware, seconds

#: What a firing queues: a built work, or a function that returns one, or queues by itself and returns None.
Run: TypeAlias = WorkRequest[Any, Any] | Callable[[], Any]

LONGEST_NAME = 128
LONGEST_CRON = 255
CHOICES = {
    "overlap": ("allow", "skip", "queue"),
    "catch_up": ("none", "last", "all"),
    "dst": ("skip", "shift"),
}


def checked(given: dict[str, Any]) -> dict[str, Any]:
    """Return what was said about when and how, checked."""
    times = [key for key in ("cron", "every", "next") if given.get(key) is not None]
    if len(times) != 1:
        raise TypeError(
            "expected schedule() to have exactly one of a cron expression, every= and next=, "
            f"got: {', '.join(times) or 'none of them'}."
        )
    checks: dict[str, Callable[[Any], Any]] = {
        "cron": check_cron,
        "every": check_every,
        "next": check_next,
        "tz": check_tz,
        "jitter": lambda value: seconds(value, "jitter"),
        "start": lambda value: check_moment(value, "start"),
        "end": lambda value: check_moment(value, "end"),
        **{key: partial(check_choice, key) for key in CHOICES},
    }
    return {key: checks[key](value) for key, value in given.items() if key in checks and value is not None}


def check_cron(value: str) -> str:
    """Return the expression if it can be read and stored."""
    expression = parse_cron(value).expression
    if len(expression) > LONGEST_CRON:
        raise InvalidOption(f"expected at most {LONGEST_CRON} characters of cron, got: {len(expression)}.")
    return expression


def check_every(value: Any) -> float:
    """Return the interval in seconds; a scheduler looks once a second."""
    number = seconds(value, "every")
    if number < 1:
        raise InvalidOption(f"expected every to be 1 second or more, got: {value!r}.")
    return number


def check_next(value: Any) -> Any:
    """Return the function that tells the next moment."""
    if not callable(value) or inspect.iscoroutinefunction(value):
        raise InvalidOption(
            f"expected next to be a plain function from the present moment to the next, got: {value!r}."
        )
    return value


def check_tz(value: Any) -> str:
    """Return the IANA name of a zone."""
    name = getattr(zone_of(value), "key", None)
    if not isinstance(name, str):
        raise InvalidOption(f"expected tz to be a name such as 'Europe/Paris', got: {value!r}.")
    return name


def check_choice(key: str, value: Any) -> str:
    """Return one of the few words an option takes."""
    choices = CHOICES[key]
    if value not in choices:
        words = ", ".join(map(repr, choices[:-1])) + f" or {choices[-1]!r}"
        raise InvalidOption(
            f"expected {key} to be {words}, got: {value!r}.{did_you_mean(str(value), choices)}"
        )
    return str(value)


def check_moment(value: Any, key: str) -> date:
    """Return a date, or an aware datetime."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    return require_aware(value, key)


def require_run(run: Run | None) -> Run:
    """Return what a firing runs if it can do without arguments; raise ImproperWork otherwise."""
    if run is None:
        raise ImproperWork(
            "expected run= to be a function, or a work built by calling its type, got: None. Was a function "
            "called? Give the function itself: run=nightly, without parentheses."
        )
    if isinstance(run, GateRequest) or not (isinstance(run, WorkRequest) or callable(run)):
        raise ImproperWork(
            f"expected run= to be a function, or a work built by calling its type, got: {run!r}; "
            "build a gate in a function that returns it."
        )
    if isinstance(run, WorkRequest):
        return run
    if inspect.iscoroutinefunction(run) or inspect.isgeneratorfunction(run):
        raise ImproperWork(
            f"expected run= to be a plain function, got {origin(run)}; let it return a work that is async."
        )
    if missing := inputs_of(run):
        raise ImproperWork(
            f"a schedule runs {origin(run)} without arguments, so {', '.join(missing)} needs a default; "
            "or give run= a built work, such as run=add(a=1, b=2)."
        )
    return run


def inputs_of(run: Callable[..., Any]) -> list[str]:
    """Return the parameters without a default."""
    signature = run.signature if isinstance(run, WorkType) else inspect.signature(run)
    return [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    ]


def name_of(run: Run, given: Any) -> str:
    """Return the name: the one given, else that of the type, or of the function with the label of its app."""
    name = given if given is not None else own_name(run)
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise InvalidOption(
            f"expected the name of a schedule to be 1 to {LONGEST_NAME} printable characters, got: {name!r}."
        )
    return name


def own_name(run: Run) -> str:
    """Return the name of a type, or the label of a function's app and its name."""
    if isinstance(run, WorkType):
        return run.name
    if getattr(run, "__name__", "<lambda>") == "<lambda>":
        raise ImproperWork(f"expected name= for a schedule that runs {run!r}, which has no name of its own.")
    return default_name(cast("Callable[..., Any]", run), "schedule")


def origin(function: Callable[..., Any]) -> str:
    """Return where a function is defined, as its module and name."""
    module = getattr(function, "__module__", None) or "?"
    return f"{module}.{getattr(function, '__qualname__', type(function).__qualname__)}"
