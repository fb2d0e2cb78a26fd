"""The database that holds the queue: its connection, its transactions, its errors."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import datetime
from functools import cache
from typing import Any, TypeVar

from django.db import (
    DataError,
    Error,
    IntegrityError,
    OperationalError,
    connections,
    transaction,
)
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model, QuerySet
from django.db.models.manager import Manager
from django.db.utils import load_backend

from django_ayework.conf import get_settings
from django_ayework.store.connections import has_connected
from django_ayework.store.prepared import run_prepared

# --- database ---
# The database that holds the queue: its connection, its transactions, what it can do.

T = TypeVar("T")
M = TypeVar("M", bound=Model)

#: Rows in one statement: far below every database's limit of parameters, enough to make round trips rare.
CHUNK = 500
#: The same where the parameters are whole columns.
SET = 4000
DEADLOCK_RETRIES = 8


def alias() -> str:
    """Return the alias of the queue's database."""
    return get_settings().database


def connection() -> BaseDatabaseWrapper:
    """Return this thread's connection to the queue's database."""
    return connections[alias()]


def rows(model: type[M]) -> Manager[M]:
    """Return the model's manager on the queue's database."""
    return model._default_manager.db_manager(alias())


def atomic() -> AbstractContextManager[None]:
    """Return a transaction (or a savepoint inside one) on the queue's database."""
    return transaction.atomic(using=alias())


def in_transaction() -> bool:
    """Tell whether this thread is inside a transaction on the queue's database, perhaps a manual one."""
    database = connection()
    return database.in_atomic_block or is_manual(database)


def is_manual(database: BaseDatabaseWrapper) -> bool:
    """Tell whether the caller commits by itself, after ``set_autocommit(False)``."""
    if database.in_atomic_block:
        return not database.commit_on_exit
    return database.connection is not None and not database.autocommit


def on_commit(act: Callable[[], object]) -> None:
    """Act once this thread's transaction has committed; at once when there is none. A rollback drops it.

    Nothing is done after a manual transaction: Django does not tell when that commits. Callbacks registered
    there would pile up until autocommit is on again.
    """
    database = connection()
    if not is_manual(database):
        transaction.on_commit(act, using=database.alias)


def open_transactions() -> int:
    """Return how many transactions and savepoints this thread is inside, one in the other."""
    return len(connection().atomic_blocks) if has_connected() else 0


def is_postgresql() -> bool:
    """Tell whether set-based statements of PostgreSQL can be used. Nearly every statement asks."""
    return vendor() == "postgresql"


def vendor() -> str:
    """Return what Django calls the queue's database; to ask a thread's connection takes longer."""
    return vendor_of(connections.settings[alias()]["ENGINE"])


@cache
def vendor_of(engine: str) -> str:
    """Return what Django calls the databases of an engine."""
    name: str = load_backend(engine).DatabaseWrapper.vendor
    return name


def has_returning() -> bool:
    """Tell whether this is SQLite with ``UPDATE … FROM … RETURNING``, which its 3.35 brought."""
    database = connection()
    return database.vendor == "sqlite" and bool(database.features.can_return_columns_from_insert)


def stored_moment(moment: datetime | None) -> Any:
    """Return a datetime as a raw statement's parameter."""
    return connection().ops.adapt_datetimefield_value(moment) if moment is not None else None


def fetch(sql: str, params: Sequence[Any], often: bool = False) -> list[tuple[Any, ...]]:
    """Run a statement and return its rows; one that runs ``often`` is prepared where that can be done."""
    if often and (prepared := run_prepared(connection(), sql, params)) is not None:
        rows_: list[tuple[Any, ...]] = prepared.fetchall()
        return rows_
    with connection().cursor() as cursor:
        cursor.execute(sql, params)
        found: list[tuple[Any, ...]] = cursor.fetchall()
    return found


def in_own_transaction(use_case: Callable[[], T]) -> T:
    """Run a use case in a transaction, again after a deadlock or a serialization failure.

    Only the outermost transaction may be repeated: inside a caller's one, the error is the caller's. A lock
    timeout is not repeated: it says how long the caller wants to wait.
    """
    for attempt in range(DEADLOCK_RETRIES):
        started = time.monotonic()
        try:
            with atomic():
                return use_case()
        except OperationalError as error:
            if in_transaction() or attempt == DEADLOCK_RETRIES - 1 or not has_collided(error, started):
                raise
        time.sleep(random.uniform(0.001, 0.02) * 2**attempt)  # noqa: S311  # spreads rivals, no secret
    raise AssertionError("unreachable")


#: PostgreSQL: serialization failure, deadlock. MySQL: deadlock.
COLLISION_CODES = frozenset({"40001", "40P01", 1213})
#: The same, and lock timeouts: of PostgreSQL, of MySQL.
CONTENTION_CODES = COLLISION_CODES | {"55P03", 1205}
#: PostgreSQL: query canceled. MariaDB: statement timeout. MySQL: query timeout.
TIMEOUT_CODES = frozenset({"57014", 1969, 3024})


def has_collided(error: Error, started: float) -> bool:
    """Tell whether the database ended a transaction at once, for the sake of another one.

    ``started`` is when it began. SQLite says "database is locked" at once when a transaction that has read
    would write, and another one has written or is about to; and it says so after its busy timeout.
    """
    if not is_locked(error):
        return code_of(error) in COLLISION_CODES
    [(timeout,)] = fetch("PRAGMA busy_timeout", ())
    return time.monotonic() - started < float(timeout) / 1000


def is_contention(error: Error) -> bool:
    """Tell whether others held what the transaction needs, so that it may succeed later."""
    return code_of(error) in CONTENTION_CODES or is_locked(error)


def is_locked(error: Error) -> bool:
    """Tell whether SQLite could not have its one lock."""
    return "database is locked" in str(error)


def has_timed_out(error: Error) -> bool:
    """Tell whether a statement was ended because it took longer than it may."""
    return code_of(error) in TIMEOUT_CODES


#: MySQL: wrong value for a column's character set or type, out of range, too long, a packet too large.
DATA_CODES = frozenset({1153, 1264, 1292, 1301, 1366, 1406})
#: PostgreSQL: what is to be stored is more than a row or an index entry can have.
LIMITS = "54"


def is_refused_data(error: Error) -> bool:
    """Tell whether the database has refused the values themselves, and would refuse them again."""
    code = code_of(error)
    limits = isinstance(code, str) and code.startswith(LIMITS)
    return isinstance(error, (DataError, IntegrityError)) or code in DATA_CODES or limits


def code_of(error: Error) -> object:
    """Return what the database calls an error: a text or a number, by vendor."""
    return getattr(error.__cause__, "sqlstate", None) or (error.args[0] if error.args else None)


def chunked(items: Sequence[T], size: int = CHUNK) -> list[Sequence[T]]:
    """Return the items in slices of at most ``size``."""
    return [items[start : start + size] for start in range(0, len(items), size)]


def found_in(query: QuerySet[Any, T], field: str, values: Iterable[Any]) -> Iterator[T]:
    """Yield the rows of a query whose field has one of these values; each statement asks for some of them."""
    for some in chunked(list(values)):
        yield from query.filter(**{f"{field}__in": some})


# --- brief ---
# Transactions that hardly wait for locks: for what can as well be done later.

#: PostgreSQL looks for deadlocks after a second (``deadlock_timeout``), and picks any victim. A transaction
#: that gives up before that is never the reason why a caller's transaction becomes one.
MILLISECONDS = 250
POSTGRESQL = f"SET LOCAL lock_timeout = {MILLISECONDS}"
#: The least that both MariaDB and MySQL take: a second.
MYSQL = "SET @ayework_lock_wait = @@SESSION.innodb_lock_wait_timeout, SESSION innodb_lock_wait_timeout = 1"
MYSQL_AS_BEFORE = "SET SESSION innodb_lock_wait_timeout = @ayework_lock_wait"


def briefly(use_case: Callable[[], T]) -> T | None:
    """Run a use case in a transaction that does not wait long for locks; return None if it would have to.

    Inside a caller's transaction, whose session is the caller's too, it waits as long as any other.
    """
    if in_transaction():
        with atomic():
            return use_case()
    with ExitStack() as session:
        session.enter_context(short_waits())
        try:
            with atomic():
                if connection().vendor == "postgresql":
                    run(POSTGRESQL)
                done = use_case()
                session.close()  # hooks that run after the commit have the session as it was before
                return done
        except OperationalError as error:
            if not is_contention(error):
                raise
            return None


@contextmanager
def short_waits() -> Generator[None]:
    """Shorten how long the session waits for locks, where a transaction cannot say so for itself."""
    vendor = connection().vendor
    if vendor == "mysql":
        run(MYSQL)
        restoring = MYSQL_AS_BEFORE
    elif vendor == "sqlite":
        restoring = f"PRAGMA busy_timeout = {run('PRAGMA busy_timeout')}"
        run(f"PRAGMA busy_timeout = {MILLISECONDS}")
    else:
        yield
        return
    try:
        yield
    finally:
        run(restoring)


def run(sql: str) -> object:
    """Run a statement; return the value that it gives, if it gives one."""
    with connection().cursor() as cursor:
        cursor.execute(sql)
        found = cursor.fetchone() if cursor.description else None
    return found and found[0]
