"""The options of ``@work`` and ``@batch_work``: their values, checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from inspect import Parameter, Signature
from typing import Any

from django_ayework.define.options import MEANINGS, check_flag, check_name, check_priority, check_retry
from django_ayework.define.types import WorkSettings, check_middleware
from django_ayework.doers import Doer
from django_ayework.errors import ImproperWork, InvalidOption, did_you_mean
from django_ayework.rules.durations import seconds

# --- doer option ---
# The option ``doer``: what runs the works of a type in place of the worker's slots.

METHODS = ("available", "submit", "drained")


def check_doer(value: object, name: str) -> Doer | None:
    """Return a doer; None stays None."""
    if value is None or (isinstance(value, Doer) and not isinstance(value, type)):
        return value
    missing = [method for method in METHODS if not callable(getattr(value, method, None))]
    why = "which is a class" if isinstance(value, type) else f"which has no {', '.join(missing)}"
    raise InvalidOption(
        f"expected {name} to be a doer, such as django_ayework.doers.balanced(8), got: {value!r}, {why}."
    )


# --- redaction ---
# Saying which inputs people are not shown.


def check_redact(value: object, name: str) -> tuple[str, ...]:
    """Return dotted paths into the input, given as a list of texts."""
    if not isinstance(value, (list, tuple)):
        raise InvalidOption(f"expected {name} to be a list of names such as 'card.number', got: {value!r}.")
    for path in value:
        if not isinstance(path, str) or not all(path.split(".")):
            raise InvalidOption(f"expected {name} to have names such as 'card.number', got: {path!r}.")
    return tuple(value)


def require_inputs(signature: Signature, name: str, paths: Sequence[str]) -> None:
    """Raise ImproperWork unless each path begins at an input: a slip of the pen would show what it hides."""
    parameters = signature.parameters.values()
    if any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters):
        return
    for path in paths:
        if (first := path.partition(".")[0]) not in signature.parameters:
            raise ImproperWork(
                f"expected redact= of {name!r} to name its inputs ({', '.join(signature.parameters)}), "
                f"got: {path!r}.{did_you_mean(first, signature.parameters)}"
            )


# --- retention ---
# How long ended works are kept, as a setting or a type says it.

#: The ways in which a work ends.
ENDS = ("success", "cancelled", "dead")


def check_retention(value: object, name: str) -> dict[str, float | None]:
    """Return seconds by status, None for good; statuses that are left out are left to the next level down.

    >>> check_retention({"success": 60, "dead": None}, "retention")
    {'success': 60.0, 'dead': None}
    """
    if not isinstance(value, Mapping):
        raise InvalidOption(
            f"expected {name} to be a mapping of {', '.join(ENDS)} to seconds (a number), a timedelta, "
            f'or None for good, such as {{"success": 3600}}, got: {value!r}.'
        )
    checked: dict[str, float | None] = {}
    for status, kept in value.items():
        if status not in ENDS:
            raise InvalidOption(
                f"expected the keys of {name} to be of {', '.join(ENDS)}, "
                f"got: {status!r}.{did_you_mean(str(status), ENDS)}"
            )
        checked[status] = None if kept is None else seconds(kept, f"{name}[{status!r}]")
    return checked


# --- type options ---
# The options of ``@work`` and ``@batch_work``: their values, checked.

MAX_TYPE_LENGTH = 128

#: Options that only a queued work has: which work waits, until when, and which one it is.
OF_ONE_WORK = ("delay", "run_at", "deadline", "blockers", "dedup", "unit", "id", "about", "on_commit")
#: What the options of a type are called elsewhere, besides those that every queued work may have.
TYPE_MEANINGS = {
    **{name: meant for name, meant in MEANINGS.items() if meant.partition("=")[0] not in OF_ONE_WORK},
    **{name: f"enqueue(…, {name}=…)" for name in OF_ONE_WORK},
    **{
        name: f"enqueue(…, {meant if '=' in meant else f'{meant}=…'})"
        for name, meant in MEANINGS.items()
        if meant.partition("=")[0] in OF_ONE_WORK
    },
    "bind": "a first parameter named ctx",
    "pass_context": "a first parameter named ctx",
    "takes_context": "a first parameter named ctx",
    "rate_limit": "doer=rate_limited(…)",
    "concurrency": "max_running",
    "max_concurrency": "max_running",
    "cron": "@schedule(…) above @work",
    "crontab": "@schedule(…) above @work",
    "every": "@schedule(…) above @work",
    "schedule": "@schedule(…) above @work",
    "batch_size": "@batch_work(size=…)",
}


def checked_settings(options: Mapping[str, Any], decorator: str, besides: Sequence[str] = ()) -> WorkSettings:
    """Return the options of a decorator with their values checked; unknown ones raise TypeError.

    ``besides`` are options that the decorator has itself.
    """
    checks: dict[str, Callable[[Any, str], Any]] = {
        "queue": check_name,
        "priority": check_priority,
        "fairness": check_name,
        "retry": check_retry,
        "timeout": seconds,
        "expires": seconds,
        "lease": seconds,
        "atomic": check_flag,
        "interrupt": check_flag,
        "skip_queue": check_flag,
        "schedulable": check_flag,
        "middleware": check_middleware,
        "redact": check_redact,
        "retention": check_retention,
        "doer": check_doer,
        "then": check_type_name,
        "order": check_order,
        "weight": check_weight,
        "max_running": check_limit,
        "interval": check_interval,
    }
    known = [field.name for field in fields(WorkSettings)]
    for key in options:
        if key not in known:
            hint = did_you_mean(key, ["name", *besides, *known], TYPE_MEANINGS)
            raise TypeError(f"{key!r} is not an option of {decorator}.{hint}")
    given = {
        key: checks[key](value, key) if key in checks else value
        for key, value in options.items()
        if value is not None
    }
    return WorkSettings(**given)


def check_type_name(value: object, name: str) -> str:
    """Return the name of a type, which need not be defined yet."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_TYPE_LENGTH:
        raise InvalidOption(f'expected {name} to be the name of a type, such as "shop.send", got: {value!r}.')
    return value


def check_order(value: object, name: str) -> str:
    """Return what works of equal priority go by."""
    if value not in ("time", "unit"):
        raise InvalidOption(f'expected {name} to be "time" or "unit", got: {value!r}.')
    return value


def check_weight(value: object, name: str) -> int:
    """Return a share relative to those of other types."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**31:
        raise InvalidOption(f"expected {name} to be a whole number above 0, got: {value!r}.")
    return value


def check_limit(value: object, name: str) -> int:
    """Return how many may run at a time; 0 is no limit."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        raise InvalidOption(f"expected {name} to be a whole number, 0 for no limit, got: {value!r}.")
    return value


def check_interval(value: Any, name: str) -> float:
    """Return the seconds from one work of a continuous type to the next; 0 is at once."""
    return seconds(value, name)
