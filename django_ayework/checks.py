"""System checks, with stable ids."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, tzinfo
from functools import partial, wraps
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeAlias
from urllib.parse import parse_qs, urlsplit

from django.apps import AppConfig, apps
from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.utils.module_loading import import_string

from django_ayework.conf import (
    BESIDE,
    KEYS,
    Settings,
    get_settings,
    settings_beside,
    unknown_keys,
    unusable_values,
)
from django_ayework.define.options import HOOKS
from django_ayework.define.schedules import schedules
from django_ayework.define.types import AnyWorkType, WorkType, registry
from django_ayework.documentation import with_entry
from django_ayework.errors import did_you_mean
from django_ayework.flow.startup_checks import unloaded_modules, without_commits, wrong_isolation
from django_ayework.models import Work
from django_ayework.rules.formatting import duration
from django_ayework.rules.server_diagnosis import SHORT_BUSY
from django_ayework.rules.signatures import misfit
from django_ayework.store.sessions import narrow_charset

Check: TypeAlias = Callable[..., Iterable[CheckMessage]]


def registered(tag: str) -> Callable[[Check], Check]:
    """Register a check whose messages lead to their entries in the documentation."""

    def decorate(check: Check) -> Check:
        @wraps(check)
        def carried_out(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
            return [with_entry(message) for message in check(app_configs, **kwargs)]

        register(tag)(carried_out)
        return carried_out

    return decorate


@registered("ayework")
def check_settings(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> Iterator[CheckMessage]:
    """E001: unknown keys. E002: unusable values. E004: naive datetimes. Then what usable settings say."""
    try:
        for key, hint in unknown_keys().items():
            yield Error(f"AYEWORK has the unknown key {key!r}.", hint=hint or None, id="ayework.E001")
        for wrong in unusable_values():
            yield Error(f"AYEWORK cannot be used: {wrong}", id="ayework.E002")
    except ImproperlyConfigured as wrong:
        yield Error(f"AYEWORK cannot be used: {wrong}", id="ayework.E002")
    if not django_settings.USE_TZ:
        message = "django_ayework works with aware datetimes only."
        yield Error(message, hint="Set USE_TZ = True.", id="ayework.E004")
    if (settings := usable_settings()) is not None:
        for check in (
            check_aliases,
            check_durations,
            check_store,
            check_pubsub,
            check_time_zone,
            check_caches,
        ):
            yield from check(settings)


def usable_settings() -> Settings | None:
    """Return the settings, or None where they cannot be used, as E002 says."""
    try:
        return get_settings()
    except ImproperlyConfigured:
        return None


def check_aliases(settings: Settings) -> Iterator[CheckMessage]:
    """E003, E009: DATABASES does not have the alias. E015: nothing is committed there."""
    known, alias, other = connections.settings, settings.database, settings.pubsub_database
    if other is not None and other not in known:
        message = f"AYEWORK['PUBSUB_DATABASE'] is {other!r}, but DATABASES has no such alias."
        yield Error(message, hint=did_you_mean(other, known).strip() or None, id="ayework.E009")
    if alias not in known:
        message = f"AYEWORK['DATABASE'] is {alias!r}, but DATABASES has no such alias."
        yield Error(message, hint=did_you_mean(alias, known).strip() or None, id="ayework.E003")
    elif (wrong := without_commits(connections[alias])) is not None:
        yield Error(wrong.text, hint=wrong.remedy, id="ayework.E015")


@registered("ayework")
def check_settings_beside(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> Iterator[CheckMessage]:
    """W006: a setting beside ``AYEWORK`` that is one of its keys, and is not read."""
    for name, hint in settings_beside().items():
        key = name.removeprefix(BESIDE)
        do = f"Write AYEWORK = {{{key!r}: …}} instead." if key in KEYS else f"{hint} It is a key of AYEWORK."
        message = (
            f"The setting {name} is not read: the settings of django_ayework are in the dictionary AYEWORK."
        )
        yield Warning(message, hint=do, id="ayework.W006")


#: The part of a lease that a statement may take, so that a renewal that hangs is tried again in time.
LEASE_PART = 2 / 3


def check_durations(settings: Settings) -> Iterator[CheckMessage]:
    """W008: a worker's own statement may take so long that leases lapse meanwhile."""
    longest, most = settings.statement_timeout, settings.lease * LEASE_PART
    if longest is None or longest <= most:
        return
    message = (
        f"AYEWORK['STATEMENT_TIMEOUT'] is {longest:g} seconds, which is more than two thirds of "
        f"AYEWORK['LEASE'], {settings.lease:g} seconds: works may be claimed again while they run."
    )
    hint = f"Set STATEMENT_TIMEOUT to {most:g} or less, or LEASE to {longest / LEASE_PART:g} or more."
    yield Warning(message, hint=hint, id="ayework.W008")


#: Caches that are not the same for all processes, keep nothing, or cannot add a key in one step.
UNSHARED_CACHES = ("locmem.LocMemCache", "dummy.DummyCache", "filebased.FileBasedCache")


def check_store(settings: Settings) -> Iterator[CheckMessage]:
    """W004: a Store in a cache that processes do not share. W005: ON_BACKLOG that is never called."""
    backend = str(django_settings.CACHES.get("default", {}).get("BACKEND", ""))
    if settings.store == "cache" and backend.endswith(UNSHARED_CACHES):
        yield Warning(
            f"AYEWORK['STORE'] is 'cache', but {backend} is no cache that processes share, so "
            "shared limits do not hold.",
            hint="Let CACHES['default'] be Redis or Memcached, or set AYEWORK['STORE'] to 'database'.",
            id="ayework.W004",
        )
    if settings.on_backlog is not None and settings.backlog_after is None:
        yield Warning(
            "AYEWORK['ON_BACKLOG'] is never called, as AYEWORK['BACKLOG_AFTER'] is not set.",
            hint="Set it to how many seconds tasks may wait.",
            id="ayework.W005",
        )


#: The carriers of wake-ups, and the databases that each supports.
PUBSUB_ENGINES = {"postgres": "postgresql", "sqlite": "sqlite", "mariadb": "mysql"}
HINT_AT_REDIS = "Set it, such as to 'redis://localhost:6379/0'."
#: How the addresses begin that redis-py takes.
REDIS_SCHEMES = ("redis", "rediss", "unix")


def check_pubsub(settings: Settings) -> Iterator[CheckMessage]:
    """E010: PUBSUB cannot carry anything. E014: a queue cannot deliver anything."""
    if settings.pubsub == "redis" and not settings.redis_url:
        message = "AYEWORK['PUBSUB'] is 'redis', but AYEWORK['REDIS_URL'] is not set."
        yield Error(message, hint=HINT_AT_REDIS, id="ayework.E010")
    if settings.pubsub == "redis" and find_spec("redis") is None:
        message = "AYEWORK['PUBSUB'] is 'redis', but the package redis is not installed."
        hint = "Run: pip install django-ayework[redis]."
        yield Error(message, hint=hint, id="ayework.E010")
    if settings.redis_url and urlsplit(settings.redis_url).scheme not in REDIS_SCHEMES:
        message = f"AYEWORK['REDIS_URL'] is no address of Redis: {settings.redis_url!r}."
        yield Error(message, hint=HINT_AT_REDIS, id="ayework.E010")
    for name, declared in settings.queues.items():
        if declared.delivery == "redis-streams" and not settings.redis_url:
            message = (
                f"AYEWORK['QUEUES'][{name!r}]['DELIVERY'] is 'redis-streams', but AYEWORK['REDIS_URL'] is "
                "not set."
            )
            yield Error(message, hint=HINT_AT_REDIS, id="ayework.E014")
    engine = PUBSUB_ENGINES.get(settings.pubsub) if isinstance(settings.pubsub, str) else None
    queue = connections.settings.get(settings.database)
    if engine is not None and queue is not None and connections[settings.database].vendor != engine:
        message = f"AYEWORK['PUBSUB'] is {settings.pubsub!r}, but the queue is on another kind of database."
        hint = "Leave it out: the one that fits the database is chosen then."
        yield Error(message, hint=hint, id="ayework.E010")


@registered("ayework")
def check_names(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> Iterator[CheckMessage]:
    """E005: two handlers of one type name. E011: two schedules; only the one declared later would fire."""
    for name, (first, second) in sorted(registry.clashes.items()):
        message = f"Two works are named {name!r}: {first} and {second}."
        yield Error(message, hint='Give one of them another name: @work(name="...").', id="ayework.E005")
    for name, (first, second) in sorted(schedules.clashes.items()):
        message = f"Two schedules are named {name!r}: {first} and {second}."
        yield Error(message, hint='Give one of them another name: schedule(…, name="…").', id="ayework.E011")


@registered("ayework")
def check_paths(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> Iterator[CheckMessage]:
    """E008: a dotted path that cannot be imported, or leads to a hook that does not take its arguments."""
    for work_type in sorted(registry, key=lambda work_type: work_type.name):
        settings = work_type.settings
        hooks = {name: getattr(settings, name) for name in HOOKS}
        for option, path in [*hooks.items(), *(("middleware", path) for path in settings.middleware)]:
            if not isinstance(path, str):
                continue
            try:
                found = import_string(path)
            except ImportError as missing:
                message = f"{option}= of the work {work_type.name!r} cannot be imported: {missing}."
                yield Error(message, hint="Correct the dotted path.", id="ayework.E008")
                continue
            if option in HOOKS and (wrong := misfit(found, len(HOOKS[option]))):
                message = (
                    f"{option}= of the work {work_type.name!r} is called with ({', '.join(HOOKS[option])}), "
                    f"but {path} takes {wrong}."
                )
                yield Error(message, hint="Change the parameters of the function.", id="ayework.E008")


@registered("ayework")
def check_targets(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """W003: ``then=`` names an unknown type, so the output would be dropped."""
    return [
        Warning(
            f"{work_type.name!r} has then={work_type.settings.then!r}, but no work has that name; "
            "its output is dropped.",
            hint=did_you_mean(str(work_type.settings.then), registry.names()).strip()
            or 'Give the name of a type: then="<app_label>.<function name>".',
            id="ayework.W003",
        )
        for work_type in registry
        if work_type.settings.then is not None and registry.find(work_type.settings.then) is None
    ]


@registered("ayework")
def check_order_of_decorators(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """W010: a decorator above ``@work`` surrounds the call that builds a request, and not the handler."""
    return [
        Warning(
            f"{work_type.handler.__qualname__}() of the work {work_type.name!r} has another decorator above "
            "@work, which surrounds the call that builds a request, and not the handler in a worker.",
            hint="Write the other decorator below @work.",
            id="ayework.W010",
        )
        for work_type in sorted(registry, key=lambda work_type: work_type.name)
        if is_decorated(work_type)
    ]


def is_decorated(work_type: AnyWorkType) -> bool:
    """Tell whether the module of a handler has, by the handler's name, a function that wraps the type."""
    module = sys.modules.get(work_type.handler.__module__)
    found = vars(module).get(work_type.handler.__name__) if module else None
    if not callable(found) or isinstance(found, WorkType):
        return False
    return inspect.unwrap(found, stop=lambda inner: isinstance(inner, WorkType)) is work_type


@registered("ayework")
def check_unloaded(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """W007: a module defines works, and nothing imports it. The URL configuration is imported first."""
    with suppress(Exception):  # as the checks of URLs do, which may run before or after this one
        import_module(django_settings.ROOT_URLCONF)
    return [
        Warning(
            f"{module.name} defines works, but nothing imports it, so workers do not know them: "
            f"{', '.join(module.works)}.",
            hint=f"Move them to {module.app}.works, which is imported at start-up, or import it there."
            if module.app
            else f"Import {module.name} in the works.py of an app, or make its package an app: add it to "
            "INSTALLED_APPS and keep its works in works.py.",
            id="ayework.W007",
        )
        for module in unloaded_modules()
    ]


def check_time_zone(settings: Settings) -> Iterator[CheckMessage]:
    """W009: moments are stored as clocks show them, and one of two that clocks show alike is lost."""
    if settings.database not in connections.settings:
        return
    connection = connections[settings.database]
    if not connection.features.supports_timezones and changes_clocks(connection.timezone):
        yield Warning(
            f"The database {settings.database!r} stores moments in the zone {connection.timezone_name}: "
            "when clocks go back, leases seem to have lapsed, and works run again while they run.",
            hint="Remove TIME_ZONE from DATABASES[...] while no work is stored, or give the queue an alias "
            "of its own and name it in AYEWORK['DATABASE'].",
            id="ayework.W009",
        )


def check_caches(settings: Settings) -> Iterator[CheckMessage]:
    """W014: an app keeps the answers of queries. Most changes of works are written past it."""
    for app, keeps, hint in (
        ("cachalot", cachalot_keeps_works, "Add 'django_ayework' to CACHALOT_UNCACHABLE_APPS."),
        ("cacheops", cacheops_keeps_works, "Set CACHEOPS['django_ayework.*'] = None."),
    ):
        if apps.is_installed(app) and keeps():
            yield Warning(
                f"{app} keeps the answers of queries on the tables of the queue, so processes read works "
                "as they were: a result may never be seen, and a workflow may stand still.",
                hint=hint,
                id="ayework.W014",
            )


def cachalot_keeps_works() -> bool:
    """Tell whether django-cachalot keeps queries on works, by the settings that it documents."""
    get = partial(getattr, django_settings)
    only, never = (
        {*get(f"CACHALOT_{kind}_APPS", ()), *get(f"CACHALOT_{kind}_TABLES", ())}
        for kind in ("ONLY_CACHABLE", "UNCACHABLE")
    )
    own = {Work._meta.app_label, Work._meta.db_table}
    is_kept = own.isdisjoint(never) and not (only and own.isdisjoint(only))
    return is_kept and bool(get("CACHALOT_ENABLED", True))


def cacheops_keeps_works() -> bool:
    """Tell whether django-cacheops keeps queries on works unasked, by the settings that it documents."""
    profiles = {name.lower(): each for name, each in getattr(django_settings, "CACHEOPS", {}).items()}
    names = ("django_ayework.work", "django_ayework.*", "*.*")
    profile = next((profiles[name] for name in names if name in profiles), None)
    defaults = getattr(django_settings, "CACHEOPS_DEFAULTS", {})
    return profile is not None and bool((defaults | profile).get("ops"))


def changes_clocks(zone: tzinfo | None) -> bool:
    """Tell whether clocks of a zone, if there is one, are changed in the course of this year."""
    year = datetime.now(UTC).year
    return zone is not None and len({zone.utcoffset(datetime(year, month, 1)) for month in range(1, 13)}) > 1


@registered(Tags.database)
def check_database(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **kwargs: Any
) -> Iterator[CheckMessage]:
    """E006: too old. E007: isolation. W001, W002, W012, W013: SQLite. W011: character set."""
    settings = usable_settings()
    if settings is None or settings.database not in {*(databases or ())}.intersection(connections.settings):
        return
    alias = settings.database
    connection = connections[alias]
    if connection.vendor == "sqlite":
        yield from check_sqlite(connection)
        return
    # A settlement must see, in a later statement, what others committed meanwhile.
    if (wrong := wrong_isolation(connection)) is not None:
        yield Error(wrong.text, hint=wrong.remedy, id="ayework.E007")
    if not connection.features.has_select_for_update_skip_locked:
        yield Error(
            f"The database {alias!r} is too old: it does not know SKIP LOCKED.",
            hint="Use PostgreSQL, MariaDB 10.6 or newer, or MySQL 8.0.1 or newer.",
            id="ayework.E006",
        )
    if (charset := narrow_charset(connection)) is not None:
        yield Warning(
            f"Connections to the database {alias!r} use the character set {charset}: inputs, results and "
            "errors with other characters are refused.",
            hint='Set DATABASES[...]["OPTIONS"]["charset"] = "utf8mb4".',
            id="ayework.W011",
        )


def check_sqlite(connection: Any) -> Iterator[CheckMessage]:
    """Refuse a release without UPDATE … FROM; warn where writers will meet "database is locked"."""
    if connection.Database.sqlite_version_info < (3, 33):
        yield Error(
            f"SQLite {connection.Database.sqlite_version} is too old: it does not know UPDATE … FROM.",
            hint="Use a Python whose sqlite3 module has SQLite 3.33 or newer.",
            id="ayework.E006",
        )
    options = connection.settings_dict.get("OPTIONS", {})
    if str(options.get("transaction_mode", "")).upper() not in ("IMMEDIATE", "EXCLUSIVE"):
        yield Warning(
            "SQLite transactions do not begin with their write lock, "
            "so workers will meet 'database is locked'.",
            hint='Set DATABASES[...]["OPTIONS"]["transaction_mode"] = "IMMEDIATE".',
            id="ayework.W001",
        )
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA journal_mode")
        [journal_mode] = cursor.fetchone()
        cursor.execute("PRAGMA busy_timeout")
        [busy_timeout] = cursor.fetchone()
    if journal_mode != "wal" and not connection.is_in_memory_db():
        yield Warning(
            "SQLite is not in WAL mode, so readers and the writer block each other.",
            hint='Set DATABASES[...]["OPTIONS"]["init_command"] = "PRAGMA journal_mode=WAL;".',
            id="ayework.W002",
        )
    if busy_timeout < SHORT_BUSY:
        yield Warning(
            f"SQLite waits for its write lock for {duration(busy_timeout / 1000)}, "
            "so handlers and workers will meet 'database is locked'.",
            hint='Set DATABASES[...]["OPTIONS"]["timeout"] = 20, in seconds.',
            id="ayework.W012",
        )
    _, _, parameters = str(connection.settings_dict.get("NAME", "")).partition("?")
    if "shared" in parse_qs(parameters).get("cache", []) and not connection.is_in_memory_db():
        yield Warning(
            "Threads share a cache of SQLite, which waits for no lock, "
            "so handlers and workers will meet 'database table is locked'.",
            hint='Remove cache=shared from DATABASES[...]["NAME"].',
            id="ayework.W013",
        )
