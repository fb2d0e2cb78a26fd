"""Whether workers can run: the database, its connections, the queues, and modules that nothing imports."""

from __future__ import annotations

import ast
import pkgutil
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from django.apps import apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import Error
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ayework.conf import get_settings
from django_ayework.define.types import registry
from django_ayework.documentation import documented
from django_ayework.errors import did_you_mean
from django_ayework.flow.hooks import report
from django_ayework.flow.payloads import DEFAULT_QUEUE
from django_ayework.rules.diagnosis import GIVE_RIGHTS, Diagnosis, Level, judged, of_writes
from django_ayework.rules.formatting import sentence
from django_ayework.rules.health import Budget
from django_ayework.store.database import alias, connection, in_transaction, is_contention
from django_ayework.store.diagnosis import try_writes
from django_ayework.store.lanes import lanes_with_work
from django_ayework.store.sessions import (
    LABEL,
    has_tables,
    isolation_levels,
    missing_migrations,
    most_connections,
    name_of_server,
    pool_size,
)

#: The length of the column for the version of a worker.
VERSION_LENGTH = 40

#: What a module that defines works has in its source.
MENTIONED = re.compile(rb"django_ayework")
DECORATORS = frozenset({"work", "batch_work"})
#: Directories of installed packages, which the project does not write itself.
INSTALLED = frozenset({"site-packages", "dist-packages"})
#: Modules that define no works for workers.
PASSED_OVER = frozenset({"migrations", "conftest", "tests", "test", "testing"})


# The database


def findings(queues: Sequence[str], types: Sequence[str], budget: Budget) -> Iterator[Diagnosis]:
    """Check everything that a worker of these queues and types needs; stop if the database is not ready.

    What keeps a worker from running is a problem; a warning is worth a note.
    """
    yield (found := state_of_database())
    if found.level is Level.PROBLEM:
        return
    yield judged("database", "all migrations are applied")
    yield of_writes(refusal_of_writes())
    for module, why in registry.failed.items():
        text = f"the module {module}, which declares tasks, could not be imported: {why}"
        yield judged("tasks", text, fails=True)
    yield from findings_on_connections(budget)
    yield from findings_on_queues(queues, types)


def state_of_database() -> Diagnosis:
    """Return whether the database answers, refuses a statement, or lacks migrations or tables."""
    try:
        server = name_of_server()
    except Error as error:
        text = f"The database {alias()!r} does not answer: {sentence(in_one_line(error))}"
        remedy = f"Check that its server runs and has connections left, and DATABASES[{alias()!r}]."
        return judged("database", text, remedy, fails=True)
    try:
        lack, _, command = text_of_lack().partition(". Run: ")
    except Error as error:
        return judged("database", text_of_refusal(error), GIVE_RIGHTS, fails=True)
    if lack:
        text = f"The database {alias()!r} is not ready: {sentence(lack)}"
        return judged("database", text, f"Run: {command}", fails=True)
    return judged("database", f"The database {alias()!r} answers: {server}.")


def text_of_refusal(error: Error) -> str:
    """Return a sentence about a statement that the database has refused."""
    return f"The database {alias()!r} has refused a statement: {sentence(in_one_line(error))}"


def in_one_line(error: Error) -> str:
    """Return a driver's message, which may have several lines. That of a pool does not say what is wrong."""
    text = " ".join(str(error).split())
    if type(error.__cause__).__name__ != "PoolTimeout":
        return text
    every = f'every connection of OPTIONS["pool"] ({pool_size()})'
    return f"{text}: this process uses {every}, or the server is away"


def text_of_lack() -> str:
    """Return a sentence about migrations or tables that the database lacks; "" if it has them all."""
    if missing := missing_migrations():
        return f"migrations are missing: {', '.join(missing)}. Run: manage.py migrate --database {alias()}"
    if has_tables():
        return ""
    return (
        "migrations are recorded as applied, and their tables are missing: a router did not allow them. "
        f"Correct its allow_migrate(), and apply them anew. Run: manage.py migrate {LABEL} zero --fake "
        f"--database {alias()} && manage.py migrate --database {alias()}"
    )


def refusal_of_writes() -> str:
    """Return why rows of the queue's tables cannot be written, in one line; "" if they can be.

    A server may be read-only, and an account may lack a right. No row is written. Raises the error of a lock
    that another session holds.
    """
    try:
        try_writes()
    except Error as error:
        if is_contention(error):
            raise
        return in_one_line(error)
    return ""


def wrong_isolation(database: BaseDatabaseWrapper) -> Diagnosis | None:
    """Return a problem unless the isolation level of a database is READ COMMITTED."""
    wrong = [level for level in isolation_levels(database) if level != "read committed"]
    if not wrong:
        return None
    return judged(
        "isolation",
        f"The database {database.alias!r} isolates transactions as {wrong[0]!r}; "
        "waiting works could be missed.",
        "Remove isolation_level from OPTIONS, or set it to READ COMMITTED. On PostgreSQL, reset "
        "default_transaction_isolation where it is set: for the role, the database or the server. Or give "
        'the queue an alias of its own and name it in AYEWORK["DATABASE"].',
        fails=True,
    )


def without_commits(database: BaseDatabaseWrapper) -> Diagnosis | None:
    """Return a problem if the transactions of a database commit nothing: works would run again and again."""
    if database.settings_dict["AUTOCOMMIT"]:
        return None
    return judged(
        "isolation",
        f"AUTOCOMMIT of the database {database.alias!r} is off: no outcome of a work is committed, and works "
        "run again.",
        "Remove AUTOCOMMIT from DATABASES[...], and call transaction.set_autocommit(False) where your code "
        "commits by itself. Or give the queue an alias of its own and name it in AYEWORK['DATABASE'].",
        fails=True,
    )


def require_usable_database() -> None:
    """Raise ImproperlyConfigured unless workers can run on the database as it is.

    Raises the driver's error if the database does not answer.
    """
    if (wrong := without_commits(connection())) is not None:
        raise documented(
            ImproperlyConfigured(f"{wrong.text} {wrong.remedy} (ayework.E015)"), "nothing-committed"
        )
    if lack := text_of_lack():
        raise documented(
            ImproperlyConfigured(f"The database {alias()!r} is not ready: {lack}"), "database-not-ready"
        )
    if (wrong := wrong_isolation(connection())) is not None:
        raise documented(
            ImproperlyConfigured(f"{wrong.text} {wrong.remedy} (ayework.E007)"), "isolation-too-strict"
        )


def text_of_trouble(error: Error) -> str | None:
    """Return a sentence about a database that does not answer, lacks migrations, or raised this error.

    Return None in a transaction, where the database cannot be asked.
    """
    if in_transaction():
        return None
    connection().close()
    found = state_of_database()
    is_found = found.level is Level.PROBLEM
    return f"{found.text} {found.remedy}" if is_found else text_of_refusal(error)


def project_version() -> str:
    """Return the version of the project that ``VERSION`` gives; a function that raises is reported."""
    given = get_settings().version
    try:
        return str(given() if callable(given) else given)[:VERSION_LENGTH]
    except Exception as error:
        report(error, "hook", "VERSION failed; the worker is shown without a version")
        return ""


def findings_on_connections(budget: Budget) -> Iterator[Diagnosis]:
    """Check that the server and the pool have enough connections for the workers."""
    limit, pool = most_connections(), pool_size()
    if limit is not None and budget.most > limit:
        text = f"the server takes {limit} connections of everybody, fewer than these workers may use"
        yield judged("connections", text, warns=True)
    if pool is not None and pool < budget.concurrency:
        yield judged("connections", text_of_small_pool(pool, budget.concurrency), warns=True)


def text_of_small_pool(pool: int, concurrency: int) -> str:
    """Return a sentence about a pool with fewer connections than a worker has slots."""
    return (
        f"the pool of a process has {pool} connections, so its worker runs {pool} works at a time instead of "
        f'{concurrency}: set OPTIONS["pool"] = {{"max_size": {concurrency}}} in DATABASES[{alias()!r}]'
    )


# The queues


def queues_of_types() -> dict[str, str]:
    """Return the default queue of each type of work, also of sources that were not loaded yet."""
    registry.load()
    return {type.name: type.settings.queue or DEFAULT_QUEUE for type in registry}


def known_queues() -> set[str]:
    """Return the queues that types or their sources name."""
    return {*queues_of_types().values(), *registry.queues}


def hints_on_queues(queues: Sequence[str]) -> list[str]:
    """Return a hint on each queue that no type of work uses, if another queue has nearly that name."""
    known = sorted(known_queues())
    hints = {queue: did_you_mean(queue, known) for queue in queues if queue not in known}
    return [f"No type of work uses the queue {queue!r}.{hint}" for queue, hint in hints.items() if hint]


def findings_on_queues(queues: Sequence[str], types: Sequence[str]) -> Iterator[Diagnosis]:
    """Check that works come to these queues: by default of a type, or because some are queued there."""
    uses = queues_of_types()
    known = sorted({*known_queues(), *(lane.queue for lane in lanes_with_work())})
    for queue in queues:
        if queue in known:
            yield judged("queues", f"the queue {queue!r} is known")
        elif hint := did_you_mean(queue, known):
            yield judged("queues", f"no type of work uses the queue {queue!r}.{hint}", fails=True)
        else:
            text = f"only works queued with queue={queue!r} will come to that queue"
            yield judged("queues", text, warns=True)
    for type in types if queues else ():
        if uses[type] not in queues:
            text = f"works of the type {type!r} go to the queue {uses[type]!r}, which is not served"
            yield judged("queues", text, warns=True)


# Modules that nothing imports: their works are found in the source, without running it


class UnloadedModule(NamedTuple):
    """A module that defines works and is not imported; ``app`` is None in a package that is not an app."""

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
            if works := decorated(parsed(file, MENTIONED)):
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
    """Yield the modules of a package and of its subpackages, except tests and migrations."""
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


def parsed(file: Path, mentioned: re.Pattern[bytes]) -> ast.Module:
    """Return the syntax of a file in which this is mentioned; an empty module if it cannot be read."""
    try:
        source = file.read_bytes()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source if mentioned.search(source) else b"")
    except (OSError, SyntaxError, ValueError):
        return ast.parse(b"")


def decorated(tree: ast.Module) -> list[str]:
    """Return the functions that ``@work`` or ``@batch_work`` decorates, under any imported name.

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
    """Return the names under which the decorators are imported."""
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
