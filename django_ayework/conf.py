"""The setting ``AYEWORK``: every key with its reader, its default and its meaning.

A reader is given the value, and the name of the setting for its error message. It returns the value as the
engine uses it, or raises ImportError, TypeError or ValueError. Errors of modules of the project come through.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, TypeAlias, cast

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from django_ayework.define.options import (
    Check,
    Middleware,
    check_doer,
    check_flag,
    check_middleware,
    check_queue,
    check_retention,
    checks_of,
    whole_number,
)
from django_ayework.define.types import AnyWorkType, BatchType
from django_ayework.documentation import documented
from django_ayework.doers import Doer
from django_ayework.errors import by_other_name, did_you_mean
from django_ayework.rules.codec import Codec, RichJSON
from django_ayework.rules.durations import positive_seconds, seconds
from django_ayework.rules.formatting import error_text
from django_ayework.rules.retry import Retry, retry_of

# Readers


def optional_seconds(value: Any, name: str) -> float | None:
    """Return a duration in seconds, 0 excluded, or None."""
    return None if value is None else positive_seconds(value, name)


def default_retention() -> dict[str, float | None]:
    """Return how many seconds ended works are kept, by status; None keeps them for good."""
    return {"success": 86_400, "cancelled": 86_400, "dead": None}


def read_retention(value: Any, name: str) -> Mapping[str, float | None]:
    """Return how long works are kept: the given values over the defaults."""
    return default_retention() | check_retention(value, name)


def imported(value: Any) -> Any:
    """Return the object at a dotted path; any other value as it is. A class is instantiated."""
    found = import_string(value) if isinstance(value, str) else value
    return found() if isinstance(found, type) else found


def read_hook(value: Any, name: str) -> Any:
    """Return a callable, given as one, as its dotted path, or as a class to instantiate; None for None."""
    found = imported(value)
    if found is not None and not callable(found):
        raise TypeError(f"expected {name} to be a callable or the dotted path of one, got: {value!r}.")
    return found


def read_middleware(value: Any, name: str) -> tuple[Middleware, ...]:
    """Return middlewares as callables."""
    given = enumerate(check_middleware(value, name))
    return tuple(read_hook(one, f"{name}[{position}]") for position, one in given)


def read_doer(value: Any, name: str) -> Doer | None:
    """Return a doer, given as an object, as its dotted path, or as a class to instantiate; None for None."""
    return check_doer(imported(value), name)


def read_codec(value: Any, name: str) -> Codec:
    """Return the codec, given as an object, a class or a dotted path; None is the default one."""
    found = RichJSON() if value is None else imported(value)
    if not (callable(getattr(found, "encode", None)) and callable(getattr(found, "decode", None))):
        raise TypeError(f"expected {name} to have encode(value) and decode(text), got: {value!r}.")
    return cast(Codec, found)


def read_alias(value: Any, name: str) -> str:
    """Return the alias of a database. A system check looks for its database."""
    if not isinstance(value, str):
        raise TypeError(f"expected {name} to be an alias of DATABASES, got: {value!r}.")
    return value


def optional_alias(value: Any, name: str) -> str | None:
    """Return the alias of a database, or None."""
    return None if value is None else read_alias(value, name)


def read_address(value: Any, name: str) -> str | None:
    """Return an address as a text, or None."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"expected {name} to be an address such as 'redis://host:6379/0', got: {value!r}.")
    return value or None


def read_token(value: Any, name: str) -> str | None:
    """Return a secret text that a header can have, or None. The error does not quote the value."""
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        kind = "an empty text" if isinstance(value, str) else type(value).__name__
        raise TypeError(f"expected {name} to be a text that is not empty, or None, got: {kind}.")
    if value != value.strip() or not (value.isascii() and value.isprintable()):
        raise ValueError(
            f"expected {name} to have printable ASCII characters only, without outer spaces and line ends: "
            "it comes in a header."
        )
    return value


def port(kind: str, module: str, ours: tuple[str, ...], methods: tuple[str, ...]) -> Check:
    """Return the reader of a port: the name of one of our implementations, or a project's own object."""

    def read(value: Any, name: str) -> Any:
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

    return read


def read_version(value: Any, name: str) -> str | Callable[[], str]:
    """Return a version, given as a text or as a function that returns one."""
    if not isinstance(value, str) and not callable(value):
        raise TypeError(f"expected {name} to be a text or a function that returns one, got: {value!r}.")
    return cast("str | Callable[[], str]", value)


read_store = port(
    "Store",
    "kv",
    ("database", "cache", "local"),
    ("get", "set", "delete", "set_if_absent", "increment", "swap"),
)
read_pubsub = port(
    "PubSub",
    "pubsub",
    ("auto", "postgres", "sqlite", "mariadb", "redis", "local", "polling"),
    ("publish", "subscribe", "close"),
)
read_delivery = port(
    "Queue", "queue", ("redis-streams", "local"), ("push", "pop", "ack", "put_back", "close")
)


@dataclass(frozen=True, kw_only=True)
class QueueSettings:
    """What ``AYEWORK["QUEUES"]`` says of one queue. Keys in the setting are these names in capitals."""

    delivery: Any  # what brings the ids of due works to workers: a name, a dotted path, a Queue


def read_queues(value: Any, name: str) -> Mapping[str, QueueSettings]:
    """Return what is declared of queues, by their names."""
    if not isinstance(value, Mapping):
        raise TypeError(f"expected {name} to be a mapping of names of queues, got: {value!r}.")
    return {
        check_queue(queue, name): read_queue(given, f"{name}[{queue!r}]") for queue, given in value.items()
    }


def read_queue(given: Any, name: str) -> QueueSettings:
    """Return what is declared of one queue."""
    if not isinstance(given, Mapping) or list(given) != ["DELIVERY"]:
        raise ValueError(f"expected {name} to be {{'DELIVERY': …}}, got: {given!r}.")
    return QueueSettings(delivery=read_delivery(given["DELIVERY"], f"{name}['DELIVERY']"))


# The kinds of values, each with its reader.
Alias: TypeAlias = Annotated[str, read_alias]
Duration: TypeAlias = Annotated[float, seconds]
PositiveDuration: TypeAlias = Annotated[float, positive_seconds]
OptionalDuration: TypeAlias = Annotated[float | None, optional_seconds]
Number: TypeAlias = Annotated[int, whole_number(1)]
Hook: TypeAlias = Annotated[Callable[..., Any] | None, read_hook]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """``AYEWORK`` with every default filled in. Keys in the setting are these names in capitals.

    Durations are seconds.
    """

    database: Alias = "default"  # the database that holds the queue
    poll_interval: PositiveDuration = 1.0  # between two polls of an idle worker
    lease: PositiveDuration = 30.0  # without a heartbeat of its worker, until a work goes to another one
    store: Annotated[Any, read_store] = "database"  # keys of the fleet: a name, a dotted path, a Store
    pubsub: Annotated[Any, read_pubsub] = "auto"  # wakes other processes: a name, a dotted path, a PubSub
    pubsub_database: Annotated[str | None, optional_alias] = None  # for LISTEN; None: the queue's
    redis_url: Annotated[str | None, read_address] = None  # a Redis server for wake-ups and delivered ids
    queues: Annotated[Mapping[str, QueueSettings], read_queues] = field(default_factory=dict)  # by name
    concurrency: Number = 8  # works that one worker runs at a time
    skip_queue_concurrency: Annotated[int, whole_number(0)] = 4  # works that skip the queue, per process
    shutdown_grace: Duration = 25.0  # for running works after SIGTERM
    statement_timeout: OptionalDuration = 15.0  # of one of a worker's own statements; None: no bound
    retry: Annotated[Retry, retry_of] = field(default_factory=Retry)  # or a mapping of its fields
    retention: Annotated[Mapping[str, float | None], read_retention] = field(  # by status, of ended works
        default_factory=default_retention
    )
    strict_return: Annotated[bool, check_flag] = True  # an instruction that is not returned fails the attempt
    unknown_type_grace: Duration = 3600.0  # for a work of an unknown type, until it dies
    max_payload: Number = 1_000_000  # characters of one encoded input or result
    id: Hook = None  # makes ids of works; None: UUID version 7
    codec: Annotated[Codec, read_codec] = field(default_factory=RichJSON)  # of inputs, results, group values
    doer: Annotated[Doer | None, read_doer] = None  # of types without one; None: CONCURRENCY slots
    on_event: Hook = None  # called with every WorkEvent, after commit
    on_error: Hook = None  # called with (exception, phase); phase: "commit", "queue", "hook", "pubsub"
    on_failure: Hook = None  # given (exception, FailureInfo); may return "retry", "abort" or an exception
    log_context: Hook = None  # given (input, type); returns fields for the log records of an attempt
    middleware: Annotated[tuple[Middleware, ...], read_middleware] = ()  # the outermost first
    on_backlog: Hook = None  # called with a BacklogInfo once tasks have waited for too long
    backlog_after: OptionalDuration = None  # of waiting in a doer, until ON_BACKLOG is called; None: never
    backlog_every: OptionalDuration = None  # until it is called again while tasks wait; None: once
    backpressure: Hook = None  # given a PressureInfo before each claim; returns seconds to wait
    accept: Hook = None  # given the WorkState of a claimed work; the worker declines it by False
    version: Annotated[str | Callable[[], str], read_version] = ""  # of the project; workers store it
    unhandled_group: Hook = None  # called with a settled group that no handle waited for
    metrics_token: Annotated[str | None, read_token] = None  # opens the view of metrics; None: staff only
    progress_max_age: OptionalDuration = None  # of the token of a progress page; None: valid for good


KEYS = {each.name.upper(): each.name for each in fields(Settings)}
READERS = checks_of(Settings)
#: The settings of other packages, by the key here.
MEANINGS = by_other_name(
    {
        "RETRY": ("MAX_ATTEMPTS", "MAX_RETRIES"),
        "CONCURRENCY": ("WORKERS", "MAX_WORKERS"),
        "REDIS_URL": ("BROKER_URL",),
        "RETENTION": ("RESULT_TTL", "RESULT_EXPIRES"),
        "CODEC": ("SERIALIZER",),
        "LEASE": ("VISIBILITY_TIMEOUT",),
    }
)
#: The prefix of settings that are written beside ``AYEWORK`` by mistake.
BESIDE = "AYEWORK_"


@functools.cache
def get_settings() -> Settings:
    """Return the resolved ``AYEWORK`` setting. Raises ImproperlyConfigured for a value of the wrong kind."""
    known = {KEYS[key]: resolved(key, value) for key, value in given_settings().items() if key in KEYS}
    return Settings(**known)


def given_settings() -> Mapping[str, Any]:
    """Return ``AYEWORK`` as the project has it."""
    given = getattr(django_settings, "AYEWORK", {})
    if not isinstance(given, Mapping):
        raise documented(
            ImproperlyConfigured(f"expected AYEWORK to be a mapping, got: {given!r}."), "settings-not-usable"
        )
    return given


def resolved(key: str, value: Any) -> Any:
    """Return one setting as the engine uses it; raise ImproperlyConfigured naming the key."""
    name = f"AYEWORK[{key!r}]"
    try:
        return READERS[KEYS[key]](value, name)
    except Exception as wrong:  # also what a module raises that a path leads to, or a class
        is_ours = isinstance(wrong, (ImportError, TypeError, ValueError))
        text = str(wrong) if is_ours else error_text(wrong)
        raise documented(
            ImproperlyConfigured(text if name in text else f"{name}: {text}"), "settings-not-usable"
        ) from wrong


def unusable_values() -> Iterator[ImproperlyConfigured]:
    """Return the error of each value that cannot be used, in the order of the keys."""
    for key, value in given_settings().items():
        if key in KEYS:
            try:
                resolved(key, value)
            except ImproperlyConfigured as wrong:
                yield wrong


def unknown_keys() -> dict[str, str]:
    """Return the unknown keys of ``AYEWORK``, each with a hint at the nearest known one."""
    unknown = [key for key in given_settings() if key not in KEYS]
    return {key: did_you_mean(str(key).upper(), KEYS, MEANINGS).strip() for key in unknown}


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


def doer_of(work_type: AnyWorkType | None) -> Doer | None:
    """Return the doer that runs the works of a type: its own, or that of the settings; None for slots.

    The settings' doer runs no batches.
    """
    if work_type is None:
        return None
    doer: Doer | None = work_type.settings.doer
    return doer if isinstance(work_type, BatchType) else doer or get_settings().doer
