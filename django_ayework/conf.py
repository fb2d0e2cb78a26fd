"""The setting ``AYEWORK``: every key, its default and its unit."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, cast

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from django_ayework.define.type_options import check_doer, check_retention
from django_ayework.define.types import Middleware, check_middleware
from django_ayework.doers import Doer
from django_ayework.errors import did_you_mean
from django_ayework.rules.codec import Codec, RichJSON
from django_ayework.rules.durations import seconds
from django_ayework.rules.retry import Retry

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
    store: Any = (
        "database"  # where keys of the fleet are: "database", "cache", "local", a dotted path, a Store
    )
    pubsub: Any = "auto"  # what wakes other processes: a name of PUBSUBS, a dotted path, a PubSub
    pubsub_database: str | None = None  # alias by which PostgreSQL is listened to; None: the queue's
    redis_url: str | None = None  # where a Redis server is that may carry wake-ups
    concurrency: int = 8  # works one worker runs at a time
    skip_queue_concurrency: int = 4  # works that skip the queue, at a time in one process; 0: none do
    shutdown_grace: float = 25.0  # seconds running works may finish after SIGTERM
    statement_timeout: float | None = 15.0  # seconds one of a worker's own statements may take; None: any
    retry: Retry = field(default_factory=Retry)  # a mapping of Retry's fields; merged field by field
    retention: Mapping[str, float | None] = field(default_factory=default_retention)  # seconds, by status
    strict_return: bool = True  # an instruction built but not returned fails the attempt
    unknown_type_grace: float = 3600.0  # seconds a work of an unknown type waits for a worker that knows it
    max_payload: int = 1_000_000  # characters of one encoded input or result
    id: Callable[[], str] | None = None  # makes ids of works; None: UUID version 7
    codec: Codec = field(default_factory=RichJSON)  # encodes inputs, results and group values
    doer: Doer | None = None  # runs the works of types without one of their own; None: CONCURRENCY slots
    on_event: Hook | None = None  # called with every WorkEvent, after commit
    on_error: Hook | None = None  # called with (exception, phase); phase: "commit", "queue", "hook", "pubsub"
    on_failure: Hook | None = None  # given (exception, FailureInfo); may answer "retry", "abort", Defer(…)
    log_context: Hook | None = None  # given (input, type); answers what log records say of an attempt
    middleware: tuple[Middleware, ...] = ()  # around every handler, the outermost first
    on_backlog: Hook | None = None  # called with a BacklogInfo once tasks have waited for too long
    backlog_after: float | None = None  # seconds tasks may wait in a doer until it is called; None: never
    backlog_every: float | None = None  # seconds until it is called again while they do; None: once
    backpressure: Hook | None = None  # given a PressureInfo before each claim; answers seconds to wait
    accept: Hook | None = None  # given the WorkState of a claimed work; a worker declines it by False
    unhandled_group: Hook | None = None  # called with a settled group nobody waited for


KEYS = {field.name.upper(): field.name for field in fields(Settings)}
STORES = ("database", "cache", "local")
PUBSUBS = ("auto", "postgres", "sqlite", "mariadb", "redis", "local", "polling")
#: What a Store, and what a PubSub, can do.
STORE_METHODS = ("get", "set", "delete", "set_if_absent", "increment", "swap")
PUBSUB_METHODS = ("publish", "subscribe", "close")


@functools.cache
def get_settings() -> Settings:
    """Return the resolved ``AYEWORK`` setting. Raises ImproperlyConfigured for a value of the wrong kind."""
    known = {KEYS[key]: resolved(key, value) for key, value in given_settings().items() if key in KEYS}
    return Settings(**known)


def given_settings() -> Mapping[str, Any]:
    """Return ``AYEWORK`` as the project has it."""
    given = getattr(django_settings, "AYEWORK", {})
    if not isinstance(given, Mapping):
        raise ImproperlyConfigured(f"expected AYEWORK to be a mapping, got: {given!r}.")
    return given


def resolved(key: str, value: Any) -> Any:
    """Return one setting as the engine uses it; raise ImproperlyConfigured naming the key."""
    name = f"AYEWORK[{key!r}]"
    try:
        return READERS[KEYS[key]](value, name)
    except (ImportError, TypeError, ValueError) as wrong:
        raise ImproperlyConfigured(str(wrong) if name in str(wrong) else f"{name}: {wrong}") from wrong


def alias(value: Any, name: str) -> Any:
    """Return the alias of a database; a system check tells whether there is such a database."""
    return value


def duration(value: Any, name: str) -> float:
    """Return a duration in seconds, 0 included."""
    return seconds(value, name)


def pause(value: Any, name: str) -> float:
    """Return a duration in seconds, 0 excluded."""
    if not (number := seconds(value, name)):
        raise ValueError(f"expected {name} to be greater than 0, got: {value!r}.")
    return number


def optional_pause(value: Any, name: str) -> float | None:
    """Return a duration in seconds, 0 excluded, or None."""
    return None if value is None else pause(value, name)


def whole(value: Any, name: str) -> int:
    """Return a whole number, 0 excluded."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"expected {name} to be a whole number greater than 0, got: {value!r}.")
    return value


def count(value: Any, name: str) -> int:
    """Return a whole number, 0 included."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"expected {name} to be a whole number, 0 or more, got: {value!r}.")
    return value


def switch(value: Any, name: str) -> bool:
    """Return True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"expected {name} to be True or False, got: {value!r}.")
    return value


def retry(value: Any, name: str) -> Retry:
    """Return the retry policy, given as a mapping of some of its fields or as a Retry."""
    return value if isinstance(value, Retry) else Retry(**value)


def retention(value: Any, name: str) -> Mapping[str, float | None]:
    """Return how long works are kept: what is given, over the defaults."""
    return default_retention() | check_retention(value, name)


def hook(value: Any, name: str) -> Any:
    """Return a callable, given as one, as its dotted path, or as a class to make it with; None for None."""
    found = imported(value)
    if found is not None and not callable(found):
        raise TypeError(f"expected {name} to be a callable or the dotted path of one, got: {value!r}.")
    return found


def middleware(value: Any, name: str) -> tuple[Middleware, ...]:
    """Return middlewares as callables."""
    given = enumerate(check_middleware(value, name))
    return tuple(hook(one, f"{name}[{position}]") for position, one in given)


def doer(value: Any, name: str) -> Doer | None:
    """Return a doer, given as an object or its dotted path, or as a class to make it with; None for none."""
    return check_doer(imported(value), name)


def codec(value: Any, name: str) -> Codec:
    """Return the codec, given as an object, a class or a dotted path; None is the default one."""
    found = RichJSON() if value is None else imported(value)
    if not (callable(getattr(found, "encode", None)) and callable(getattr(found, "decode", None))):
        raise TypeError(f"expected {name} to have encode(value) and decode(text), got: {value!r}.")
    return cast(Codec, found)


def address(value: Any, name: str) -> str | None:
    """Return an address as a text, or None."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"expected {name} to be an address such as 'redis://host:6379/0', got: {value!r}.")
    return value or None


def store(value: Any, name: str) -> Any:
    """Return the name of one of our Stores, or a Store given as an object, a class or a dotted path."""
    return port(value, name, "Store", "kv", STORES, STORE_METHODS)


def pubsub(value: Any, name: str) -> Any:
    """Return the name of one of our PubSubs, or a PubSub given as an object, a class or a dotted path."""
    return port(value, name, "PubSub", "pubsub", PUBSUBS, PUBSUB_METHODS)


def port(
    value: Any, name: str, kind: str, module: str, ours: tuple[str, ...], methods: tuple[str, ...]
) -> Any:
    """Return the name of one of our implementations of a port, or a project's own."""
    if isinstance(value, str) and value in ours:
        return value
    if isinstance(value, str) and "." not in value:
        raise ValueError(
            f"expected {name} to be {', '.join(map(repr, ours))} or the dotted path of a {kind}, "
            f"got: {value!r}.{did_you_mean(value, ours)}"
        )
    found = imported(value)
    missing = [method for method in methods if not callable(getattr(found, method, None))]
    if missing:
        raise TypeError(
            f"expected {name} to be a {kind}, got: {value!r}, which has no {', '.join(missing)}; see "
            f"django_ayework.ports.{module}.{kind}."
        )
    return found


def imported(value: Any) -> Any:
    """Return what a dotted path leads to; classes are instantiated."""
    found = import_string(value) if isinstance(value, str) else value
    return found() if isinstance(found, type) else found


#: How the value of each key is checked and made usable.
READERS: dict[str, Callable[[Any, str], Any]] = {
    "database": alias,
    "poll_interval": pause,
    "lease": pause,
    "store": store,
    "pubsub": pubsub,
    "pubsub_database": alias,
    "redis_url": address,
    "concurrency": whole,
    "skip_queue_concurrency": count,
    "shutdown_grace": duration,
    "statement_timeout": optional_pause,
    "retry": retry,
    "retention": retention,
    "strict_return": switch,
    "unknown_type_grace": duration,
    "max_payload": whole,
    "id": hook,
    "codec": codec,
    "doer": doer,
    "on_event": hook,
    "on_error": hook,
    "on_failure": hook,
    "log_context": hook,
    "middleware": middleware,
    "on_backlog": hook,
    "backlog_after": optional_pause,
    "backlog_every": optional_pause,
    "accept": hook,
    "backpressure": hook,
    "unhandled_group": hook,
}


def unknown_keys() -> dict[str, str]:
    """Return the keys of ``AYEWORK`` that mean nothing, each with a hint at the nearest known one."""
    unknown = [key for key in given_settings() if key not in KEYS]
    return {key: did_you_mean(str(key).upper(), KEYS, MEANINGS).strip() for key in unknown}


#: What settings are called elsewhere.
MEANINGS = {
    "MAX_ATTEMPTS": "RETRY",
    "MAX_RETRIES": "RETRY",
    "WORKERS": "CONCURRENCY",
    "MAX_WORKERS": "CONCURRENCY",
    "BROKER_URL": "REDIS_URL",
    "RESULT_TTL": "RETENTION",
    "RESULT_EXPIRES": "RETENTION",
    "SERIALIZER": "CODEC",
    "VISIBILITY_TIMEOUT": "LEASE",
}
#: How settings begin that are beside ``AYEWORK`` and not in it.
BESIDE = "AYEWORK_"


def settings_beside() -> dict[str, str]:
    """Return settings of the project that look like keys of ``AYEWORK``, each with the nearest key."""
    names = [name for name in dir(django_settings) if name.startswith(BESIDE)]
    nearest = {name: did_you_mean(name.removeprefix(BESIDE), KEYS, MEANINGS) for name in names}
    return {name: hint.strip() for name, hint in nearest.items() if hint}


def clear_cache(*, setting: str, **kwargs: object) -> None:
    """Forget the resolved settings when a test changes them."""
    if setting == "AYEWORK":
        get_settings.cache_clear()


setting_changed.connect(clear_cache, dispatch_uid="django_ayework.conf")
