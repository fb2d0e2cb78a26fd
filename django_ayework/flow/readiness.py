"""Whether workers can run: what the database lacks, and which works have no registered type."""

from __future__ import annotations

import ast
import pkgutil
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from django.apps import apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import Error, InterfaceError, OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ayework.define.registry import registry
from django_ayework.errors import did_you_mean
from django_ayework.rules.health import Budget
from django_ayework.store.database import alias, connection, in_transaction
from django_ayework.store.lanes import lanes_with_work
from django_ayework.store.sessions import (
    isolation_levels,
    missing_migrations,
    most_connections,
    name_of_server,
    pool_size,
)

# --- readiness ---
# Whether workers can run: what the database lacks, and which queues nobody knows.

DEFAULT_QUEUE = "default"


class Weight(StrEnum):
    """What a finding means for whoever starts a worker."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    weight: Weight
    text: str


def findings(queues: Sequence[str], types: Sequence[str], budget: Budget) -> Iterator[Finding]:
    """Look at all that a worker of these queues and types needs, as far as there is something to see."""
    try:
        yield Finding(Weight.OK, f"the database {alias()!r} answers: {name_of_server()}")
        missing = missing_migrations()
    except Error as error:
        yield Finding(Weight.PROBLEM, f"the database {alias()!r} does not answer: {in_one_line(error)}")
        return
    if missing:
        yield Finding(Weight.PROBLEM, text_of_missing(missing))
        return
    yield Finding(Weight.OK, "all migrations are applied")
    yield from findings_on_connections(budget)
    yield from findings_on_queues(queues, types)


def in_one_line(error: Error) -> str:
    """Return what a driver says, which may be several lines."""
    return " ".join(str(error).split())


def text_of_missing(migrations: Sequence[str]) -> str:
    """Return what to do about migrations that were not applied."""
    return f"migrations are missing: {', '.join(migrations)}. Run: manage.py migrate --database {alias()}"


class WrongIsolation(NamedTuple):
    """What is wrong with the isolation level, and what to do about it."""

    text: str
    hint: str


def wrong_isolation(database: BaseDatabaseWrapper) -> WrongIsolation | None:
    """Return what is wrong with the isolation level of a database: only READ COMMITTED is right."""
    wrong = [level for level in isolation_levels(database) if level != "read committed"]
    if not wrong:
        return None
    return WrongIsolation(
        f"The database {database.alias!r} isolates transactions as {wrong[0]!r}; "
        "waiting works could be missed.",
        "Remove isolation_level from OPTIONS, or set it to READ COMMITTED, or give the queue "
        'an alias of its own and name it in AYEWORK["DATABASE"].',
    )


def require_usable_database() -> None:
    """Raise ImproperlyConfigured, which says what to do, if workers cannot run on the database as it is.

    Raises the driver's error if the database does not answer.
    """
    if missing := missing_migrations():
        raise ImproperlyConfigured(f"The database {alias()!r} is not ready: {text_of_missing(missing)}")
    if (wrong := wrong_isolation(connection())) is not None:
        raise ImproperlyConfigured(f"{wrong.text} {wrong.hint} (ayework.E007)")


def text_of_trouble(error: Error) -> str | None:
    """Return in a sentence why the database failed, if it is away or lacks migrations."""
    if in_transaction():
        return None
    connection().close()
    try:
        missing = missing_migrations()
    except (OperationalError, InterfaceError) as away:
        return (
            f"The database {alias()!r} does not answer: {in_one_line(away)}. "
            f"Check that its server runs, and DATABASES[{alias()!r}] in the settings."
        )
    return f"The database {alias()!r} is not ready: {text_of_missing(missing)}" if missing else None


def findings_on_connections(budget: Budget) -> Iterator[Finding]:
    """See whether the connections that workers need are to be had."""
    limit, pool = most_connections(), pool_size()
    if limit is not None and budget.most > limit:
        text = f"the server takes {limit} connections of everybody, fewer than these workers may use"
        yield Finding(Weight.NOTE, text)
    if pool is not None and pool < budget.concurrency:
        yield Finding(Weight.NOTE, text_of_small_pool(pool, budget.concurrency))


def text_of_small_pool(pool: int, concurrency: int) -> str:
    """Say that a pool has fewer connections than a worker has slots, and what to do about it."""
    return (
        f"the pool of a process has {pool} connections, so its worker runs {pool} works at a time instead of "
        f'{concurrency}: set OPTIONS["pool"] = {{"max_size": {concurrency}}} in DATABASES[{alias()!r}]'
    )


def queues_of_types() -> dict[str, str]:
    """Return by type of work the queue to which its works come unless they are told another."""
    return {type.name: type.settings.queue or DEFAULT_QUEUE for type in registry}


def hints_on_queues(queues: Sequence[str]) -> list[str]:
    """Return what to say of queues that no type of work uses, if another has nearly that name."""
    known = sorted(set(queues_of_types().values()))
    hints = {queue: did_you_mean(queue, known) for queue in queues if queue not in known}
    return [f"No type of work uses the queue {queue!r}.{hint}" for queue, hint in hints.items() if hint]


def findings_on_queues(queues: Sequence[str], types: Sequence[str]) -> Iterator[Finding]:
    """See whether works come to these queues: by a type's own choice, or because some wait there."""
    uses = queues_of_types()
    known = sorted({*uses.values(), *(lane.queue for lane in lanes_with_work())})
    for queue in queues:
        if queue in known:
            yield Finding(Weight.OK, f"the queue {queue!r} is known")
        elif hint := did_you_mean(queue, known):
            yield Finding(Weight.PROBLEM, f"no type of work uses the queue {queue!r}.{hint}")
        else:
            yield Finding(Weight.NOTE, f"only works queued with queue={queue!r} will come to that queue")
    for type in types if queues else ():
        if uses[type] not in queues:
            text = f"works of the type {type!r} go to the queue {uses[type]!r}, which is not served"
            yield Finding(Weight.NOTE, text)


# --- unloaded ---
# Works in modules that nothing imports: found in the source, without running it.

DECORATORS = frozenset({"work", "batch_work"})
#: Where packages are installed that the project does not write itself.
INSTALLED = frozenset({"site-packages", "dist-packages"})
#: Modules that define no works for workers.
PASSED_OVER = frozenset({"migrations", "conftest", "tests", "test", "testing"})


class UnloadedModule(NamedTuple):
    """A module that defines works and is not imported; ``app`` is None in a package that is no app."""

    name: str
    app: str | None
    works: tuple[str, ...]


def unloaded_modules() -> Iterator[UnloadedModule]:
    """Yield the modules of apps and of the project package that define works and are not imported."""
    seen: set[str] = set()
    for package, path, app in packages():
        for module, file in modules_below(package, path):
            if module in seen or module in sys.modules:
                continue
            seen.add(module)
            if works := works_in(file):
                yield UnloadedModule(module, app, tuple(works))


def packages() -> Iterator[tuple[str, str, str | None]]:
    """Yield the project's own packages by name, path and app: the innermost first, the project's last."""
    configs = sorted(apps.get_app_configs(), key=lambda config: -len(config.name))
    for config in configs:
        if config.name != "django_ayework" and INSTALLED.isdisjoint(Path(config.path).parts):
            yield config.name, config.path, config.name
    name = (getattr(settings, "SETTINGS_MODULE", None) or "").partition(".")[0]
    for path in getattr(sys.modules.get(name), "__path__", ()):
        yield name, path, None


def modules_below(package: str, path: str) -> Iterator[tuple[str, Path]]:
    """Yield the modules of a package and of those below it, but tests and migrations."""
    if is_passed_over(package):
        return
    for found in pkgutil.iter_modules([path]):
        module, file = f"{package}.{found.name}", Path(path, found.name)
        if found.ispkg:
            yield module, file / "__init__.py"
            yield from modules_below(module, str(file))
        elif not is_passed_over(module):
            yield module, file.with_suffix(".py")


def is_passed_over(module: str) -> bool:
    """Tell whether a module defines no works for workers, by its name.

    >>> is_passed_over("shop.tests.works"), is_passed_over("shop.test_works"), is_passed_over("shop.tasks")
    (True, True, False)
    """
    return any(
        part in PASSED_OVER or part.startswith("test_") or part.endswith(("_test", "_tests"))
        for part in module.split(".")
    )


def works_in(file: Path) -> list[str]:
    """Return the functions of a file that are decorated as works; none of a file that cannot be read."""
    try:
        source = file.read_bytes()
        if b"django_ayework" not in source:
            return []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return decorated(ast.parse(source))
    except (OSError, SyntaxError, ValueError):
        return []


def decorated(tree: ast.Module) -> list[str]:
    """Return the functions of a module that ``@work`` or ``@batch_work`` decorates, under whatever name.

    >>> decorated(ast.parse("from django_ayework import work as job\\n@job(queue='mail')\\ndef send(): ..."))
    ['send']
    """
    names = imported_names(tree)
    return [
        function.name
        for function in module_level(tree)
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        and any(dotted(decorator) in names for decorator in function.decorator_list)
    ]


def imported_names(tree: ast.Module) -> set[str]:
    """Return under which names the decorators are imported."""
    names: set[str] = set()
    for node in module_level(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "django_ayework":
            names |= {each.asname or each.name for each in node.names if each.name in DECORATORS}
            names |= {name for each in node.names if each.name == "*" for name in DECORATORS}
        elif isinstance(node, ast.Import):
            here = {each.asname or each.name for each in node.names if each.name == "django_ayework"}
            names |= {f"{package}.{name}" for package in here for name in DECORATORS}
    return names


def module_level(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements that run when a module is imported: not those of functions and classes."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.expr)):
            yield from module_level(child)


def dotted(decorator: ast.expr) -> str:
    """Return a decorator without its arguments, such as ``django_ayework.work``."""
    return ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)
