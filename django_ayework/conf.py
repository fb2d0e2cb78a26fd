"""The setting ``AYEWORK``: every key, its default and its unit."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from django_ayework.errors import did_you_mean
from django_ayework.rules.backoff import Retry
from django_ayework.rules.codec import Codec, RichJSON

Hook = Callable[..., Any]


def default_retention() -> dict[str, float | None]:
    """Return how many seconds ended works are kept, by status; None keeps them for good."""
    return {"success": 86_400, "cancelled": 86_400, "dead": None}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """``AYEWORK`` with every default filled in. Keys in the setting are these names in capitals."""

    database: str = "default"  # alias of the database that holds the queue
    poll_interval: float = 1.0  # seconds between looks of an idle worker
    lease: float = 30.0  # seconds a worker may be silent before its works go to another
    concurrency: int = 8  # works one worker runs at a time
    shutdown_grace: float = 25.0  # seconds running works may finish after SIGTERM
    retry: Retry = field(default_factory=Retry)  # a mapping of Retry's fields; merged field by field
    retention: Mapping[str, float | None] = field(default_factory=default_retention)  # seconds, by status
    strict_return: bool = True  # an instruction built but not returned fails the attempt
    unknown_type_grace: float = 3600.0  # seconds a work of an unknown type waits for a worker that knows it
    max_payload: int = 1_000_000  # characters of one encoded input or result
    id: Callable[[], str] | None = None  # makes ids of works; None: UUID version 7
    codec: Codec = field(default_factory=RichJSON)  # encodes inputs, results and group values
    on_event: Hook | None = None  # called with every WorkEvent, after commit
    on_error: Hook | None = None  # called with (exception, phase); phase is "commit", "queue" or "hook"
    on_failure: Hook | None = None  # given (exception, FailureInfo); may answer "retry", "abort", Defer(…)
    unhandled_group: Hook | None = None  # called with a settled group nobody waited for


KEYS = {field.name.upper(): field.name for field in fields(Settings)}
HOOKS = ("on_event", "on_error", "on_failure", "unhandled_group", "id", "codec")
POSITIVE = ("poll_interval", "lease", "concurrency", "max_payload")


@functools.cache
def get_settings() -> Settings:
    """Return the resolved ``AYEWORK`` setting. Raises ImproperlyConfigured for a value of the wrong kind."""
    given = getattr(django_settings, "AYEWORK", {})
    known = {KEYS[key]: value for key, value in given.items() if key in KEYS}
    for name, value in known.items():
        known[name] = resolved(name, value)
    return Settings(**known)


def resolved(name: str, value: Any) -> Any:
    """Return one setting as the engine uses it: dotted paths imported, mappings merged with defaults."""
    if name in HOOKS:
        value = import_string(value) if isinstance(value, str) else value
        return RichJSON() if name == "codec" and value is None else instance(value)
    if name == "retry":
        return resolved_retry(value)
    if name == "retention":
        return default_retention() | dict(value)
    if name in POSITIVE and not (isinstance(value, (int, float)) and value > 0):
        raise ImproperlyConfigured(
            f"expected AYEWORK[{name.upper()!r}] to be greater than 0, got: {value!r}."
        )
    return value


def resolved_retry(value: Any) -> Retry:
    """Return the retry setting, given as a mapping or as a Retry."""
    try:
        return value if isinstance(value, Retry) else Retry(**value)
    except (TypeError, ValueError) as wrong:
        raise ImproperlyConfigured(f"AYEWORK['RETRY']: {wrong}") from wrong


def instance(value: Any) -> Any:
    """Return an object: classes (such as a codec's) are instantiated."""
    return value() if isinstance(value, type) else value


def unknown_keys() -> dict[str, str]:
    """Return the keys of ``AYEWORK`` that mean nothing, each with a hint at the nearest known one."""
    given = getattr(django_settings, "AYEWORK", {})
    return {key: did_you_mean(str(key), KEYS).strip() for key in given if key not in KEYS}


def clear_cache(*, setting: str, **kwargs: object) -> None:
    """Forget the resolved settings when a test changes them."""
    if setting == "AYEWORK":
        get_settings.cache_clear()


setting_changed.connect(clear_cache, dispatch_uid="django_ayework.conf")
