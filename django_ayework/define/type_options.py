"""The options of ``@work`` and ``@batch_work``: their values, checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from django_ayework.define.doer_option import check_doer
from django_ayework.define.middleware import check_middleware
from django_ayework.define.options import MEANINGS, check_flag, check_name, check_priority, check_retry
from django_ayework.define.redaction import check_redact
from django_ayework.define.retention import check_retention
from django_ayework.define.work_type import WorkSettings
from django_ayework.errors import InvalidOption, did_you_mean
from django_ayework.rules.durations import seconds

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
