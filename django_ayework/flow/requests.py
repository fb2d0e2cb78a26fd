"""The options of works, merged from several levels and stored with each: every worker applies the same.

Also the error of a call from async code, for functions that have an async twin.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any, ParamSpec, TypeAlias, TypeVar

from django.core.exceptions import SynchronousOnlyOperation

from django_ayework.conf import get_settings
from django_ayework.rules.retry import RetryPolicy

P = ParamSpec("P")
T = TypeVar("T")


def twinned(function: Callable[P, T]) -> Callable[P, T]:
    """Let a function with an async twin name it when it is called from async code."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except SynchronousOnlyOperation as refusal:
            raise called_from_async_code(function.__name__) from refusal

    return call


def called_from_async_code(name: str) -> SynchronousOnlyOperation:
    """Return the error of a call that queries the database from async code."""
    return SynchronousOnlyOperation(
        f"{name}() queries the database, so it cannot be called from async code; write await a{name}(…)."
    )


DEFAULT_QUEUE = "default"

#: Checked options by level; those of an earlier level win.
Levels: TypeAlias = tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredOptions:
    """The options a worker needs. Durations are seconds."""

    retry: RetryPolicy
    timeout: float | None = None
    expires: float | None = None
    explicit_deadline: bool = False
    lease: float | None = None
    released: bool = False  # queued by a gate, so its context has dependents
    released_by: str | None = None  # that gate, where the work has another parent
    blocked: bool = False  # has blockers, whose results its context shows
    redact: tuple[str, ...] = ()  # dotted paths into the input that people are not shown


def start_of(levels: Levels) -> datetime | float | None:
    """Return when the work may start: of the first level that says so, ``run_at`` before ``delay``."""
    for level in levels:
        if "run_at" in level:
            return level["run_at"]  # type: ignore[no-any-return]  # checked when it was given
        if "delay" in level:
            return float(level["delay"])
    return None


def deadline_of(levels: Levels) -> tuple[datetime | None, float | None]:
    """Return the deadline and the ``expires`` of the first level that gives either."""
    for level in levels:
        if "deadline" in level or "expires" in level:
            return level.get("deadline"), level.get("expires")
    return None, None


@functools.lru_cache(maxsize=1024)
def encode_options(options: StoredOptions) -> str:
    """Return the options as text, without those that say nothing."""
    plain = {name: value for name, value in asdict(options).items() if says_something(value)}
    plain["retry"] = [*plain["retry"].values()]
    return json.dumps(plain, separators=(",", ":"))


def says_something(value: object) -> bool:
    """Tell whether the value of an option has to be stored; 0 has to."""
    return value is not None and value is not False and value != ()


@functools.lru_cache(maxsize=1024)
def decode_options(text: str) -> StoredOptions:
    """Read back what encode_options() made; any other text gives the defaults, so that no work is lost."""
    try:
        plain = json.loads(text)
        names = [field.name for field in fields(RetryPolicy)]
        retry = RetryPolicy(**dict(zip(names, plain.pop("retry"), strict=True)))
        return StoredOptions(retry=retry, redact=tuple(map(str, plain.pop("redact", ()))), **plain)
    except (ValueError, TypeError, KeyError, AttributeError):
        return StoredOptions(retry=RetryPolicy.resolve(get_settings().retry))
