"""The database that holds the queue: its connection, its transactions, its errors, its clock."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from django.core.exceptions import SynchronousOnlyOperation
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

from django_ayework.compat import blocks_of, commit_callbacks, commits_on_exit, is_broken, make_robust
from django_ayework.conf import get_settings
from django_ayework.documentation import documented
from django_ayework.store.connections import (
    Transaction,
    has_connected,
    has_failed,
    project_code,
    run_prepared,
)
from django_ayework.store.dialects import Dialect, dialect_of

P = ParamSpec("P")
T = TypeVar("T")
M = TypeVar("M", bound=Model)

#: Rows in one statement: far below every database's limit of parameters, enough to make round trips rare.
CHUNK = 500
DEADLOCK_RETRIES = 8


def alias() -> str:
    """Return the alias of the queue's database."""
    return get_settings().database


def connection() -> BaseDatabaseWrapper:
    """Return this thread's connection to the queue's database."""
    return connections[get_settings().database]


def database_file() -> str | None:
    """Return the file of the queue's SQLite database; None for one in memory, and for other databases."""
    wrapper = connection()
    if wrapper.vendor != "sqlite":
        return None
    name = str(wrapper.settings_dict["NAME"])
    return None if ":memory:" in name or "mode=memory" in name else name


def keep_database_file() -> str | None:
    """Return the file of the queue's SQLite database, and keep to it if the process changes its directory.

    A handler may do so, and a connection that is opened afterwards would make an empty file of a relative
    name there.
    """
    name = database_file()
    if name is not None and not name.startswith("file:"):
        name = connections.databases[alias()]["NAME"] = os.path.abspath(name)
    return name


def rows(model: type[M]) -> Manager[M]:
    """Return the model's manager on the queue's database."""
    return model._default_manager.db_manager(alias())


def atomic() -> AbstractContextManager[None]:
    """Return a transaction (or a savepoint inside one) on the queue's database."""
    return Transaction(alias())


def in_transaction() -> bool:
    """Tell whether this thread is inside a transaction on the queue's database, perhaps a manual one."""
    database = connection()
    return database.in_atomic_block or is_manual(database)


def is_manual(database: BaseDatabaseWrapper) -> bool:
    """Tell whether the caller commits by itself, after ``set_autocommit(False)``."""
    if database.in_atomic_block:
        return not commits_on_exit(database)
    return database.connection is not None and not database.autocommit


def on_commit(act: Callable[[], object]) -> None:
    """Act once this thread's transaction has committed; at once when there is none. A rollback drops it.

    Nothing is done after a manual transaction: Django does not tell when that commits. Callbacks registered
    there would pile up until autocommit is on again.
    """
    database = connection()
    if not is_manual(database):
        transaction.on_commit(act, using=database.alias)


@contextmanager
def savepoints() -> Iterator[None]:
    """Surround a block by a savepoint of each transaction that this thread is inside, on any database."""
    with ExitStack() as stack:
        for database in connections.all(initialized_only=True):
            if database.in_atomic_block:
                stack.enter_context(transaction.atomic(using=database.alias))
        yield


@contextmanager
def project_code_within() -> Generator[None]:
    """Let code of the project's run inside of a transaction of the engine's.

    An error of a callback of its commit that the code registers is logged only. Django would raise it from a
    transaction that has committed, and drop the callbacks behind it, such as the engine's own.
    """
    first = len(commit_callbacks(connection()))
    with project_code(), noting_rollbacks():
        yield
    make_robust(connection(), first)


def noting_rollbacks() -> AbstractContextManager[None]:
    """Return a block for code of the project's inside of a transaction of the engine's.

    MariaDB and MySQL roll the whole transaction back at a deadlock, and carry out the next statement in a new
    one. Code that catches the error would lose its rows unnoticed, so the transaction cannot be committed.
    """
    return connection().execute_wrapper(note_rollback)


def note_rollback(run: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
    """Run a statement, and mark its transaction as rolled back if the database has done that."""
    try:
        return run(sql, params, many, context)
    except Error as error:
        if code_of(error) in dialect().collision_codes and context["connection"].in_atomic_block:
            transaction.set_rollback(True, using=alias())
        raise


def open_transactions() -> int:
    """Return how many transactions and savepoints this thread is inside, one in the other."""
    return len(blocks_of(connection())) if has_connected() else 0


def answers() -> bool:
    """Tell whether the database answers at all."""
    try:
        return bool(fetch("SELECT 1", ()))
    except Exception:
        return False


def is_spoiled() -> bool:
    """Tell whether the transaction that this thread is inside can only be rolled back; without a query."""
    database = connection()
    return is_broken(database) or has_failed(database)


def dialect() -> Dialect:
    """Return the dialect of the queue's database. Its settings tell, without a connection of this thread."""
    return dialect_of(connections.settings[get_settings().database]["ENGINE"])


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


@contextmanager
def by_index(then_sort: bool = False) -> Generator[None]:
    """Return a transaction whose statements read indexes in order, so that each can stop after a few entries.

    ``then_sort`` lets them sort what an index leads to, which suits a condition that few rows meet.

    A transaction that is open already gets its own settings back. A database that reads indexes in order by
    itself needs no transaction: on SQLite one would hold the write lock.
    """
    settings = dialect().by_index_then_sort if then_sort else dialect().by_index
    if not settings:
        yield
        return
    is_inner = in_transaction()
    with atomic():
        former = ", ".join(f"current_setting('{name}')" for name in settings)
        new = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in settings.items())
        # The common table expression is read before the settings change.
        [found] = fetch(f"WITH former AS MATERIALIZED (SELECT {former}) SELECT *, {new} FROM former", ())
        yield
        if is_inner:
            own = ", ".join(f"set_config('{name}', %s, true)" for name in settings)
            fetch(f"SELECT {own}", found[: len(settings)])


def sync_only(function: Callable[P, T], name: str | None = None) -> Callable[P, T]:
    """Let the error of a call from async code name the awaitable form of the function, or of ``name``."""
    called = name or function.__name__

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except SynchronousOnlyOperation as refusal:
            raise documented(
                SynchronousOnlyOperation(
                    f"{called}() queries the database, so it cannot be called from async code; "
                    f"write await a{called}(…)."
                ),
                "called-from-async",
            ) from refusal

    return call


def in_own_transaction(use_case: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a use case in a transaction, again after a deadlock or a serialization failure.

    Only the outermost transaction may be repeated: inside a caller's one, the error is the caller's. A lock
    timeout is not repeated: it says how long the caller wants to wait.
    """
    for attempt in range(DEADLOCK_RETRIES):
        started = time.monotonic()
        try:
            with atomic():
                return use_case(*args, **kwargs)
        except OperationalError as error:
            if in_transaction() or attempt == DEADLOCK_RETRIES - 1 or not has_collided(error, started):
                raise
        time.sleep(random.uniform(0.001, 0.02) * 2**attempt)  # noqa: S311  # spreads rivals, no secret
    raise AssertionError("unreachable")


def own_transaction(use_case: Callable[P, T]) -> Callable[P, T]:
    """Let each call of a use case run as :func:`in_own_transaction` runs it."""

    @wraps(use_case)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return in_own_transaction(use_case, *args, **kwargs)

    return call


def has_collided(error: Error, started: float) -> bool:
    """Tell whether the database ended a transaction at once, for the sake of another one.

    ``started`` is when it began. SQLite says "database is locked" at once when a transaction that has read
    would write, and another one has written or is about to; and it says so after its busy timeout.
    """
    if not is_locked(error):
        return code_of(error) in dialect().collision_codes
    [(timeout,)] = fetch("PRAGMA busy_timeout", ())
    return time.monotonic() - started < float(timeout) / 1000


def is_contention(error: Error) -> bool:
    """Tell whether others held what the transaction needs, so that it may succeed later."""
    return code_of(error) in dialect().collision_codes or is_held(error)


def is_held(error: Error) -> bool:
    """Tell whether a lock that another transaction holds was not had in time."""
    return code_of(error) in dialect().lock_codes or is_locked(error)


def is_locked(error: Error) -> bool:
    """Tell whether SQLite could not have its one lock."""
    return "database is locked" in str(error)


def has_timed_out(error: Error) -> bool:
    """Tell whether a statement was ended because it took longer than it may."""
    return code_of(error) in dialect().timeout_codes


def is_refused_data(error: Error) -> bool:
    """Tell whether the database has refused the values themselves, and would refuse them again."""
    return isinstance(error, (DataError, IntegrityError)) or dialect().refuses_data(code_of(error))


def code_of(error: Error) -> object:
    """Return what the database calls an error: a text or a number, by vendor."""
    cause = error.__cause__
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)  # of psycopg 3, of psycopg2
    return state or (error.args[0] if error.args else None)


def chunked(items: Sequence[T], size: int = CHUNK) -> list[Sequence[T]]:
    """Return the items in slices of at most ``size``."""
    return [items[start : start + size] for start in range(0, len(items), size)]


def matching(query: QuerySet[Any], field: str, values: Iterable[Any], *columns: str) -> list[tuple[Any, ...]]:
    """Return columns of the rows whose field has one of these values, ``CHUNK`` values to a statement."""
    return [
        row
        for some in chunked(list(values))
        for row in query.filter(**{f"{field}__in": some}).values_list(*columns)
    ]


def delete_first(found: QuerySet[Any], most: int) -> int:
    """Delete the first of these rows, at most so many; return how many."""
    keys = list(found.values_list("pk", flat=True)[:most])
    return rows(found.model).filter(pk__in=keys).delete()[0] if keys else 0


def briefly(use_case: Callable[[], T]) -> T | None:
    """Run a use case in a transaction that does not wait long for locks; return None if it would have to.

    It is for work that can as well be done later. Inside a caller's transaction, whose session is the
    caller's too, it waits as long as any other.
    """
    if in_transaction():
        with atomic():
            return use_case()
    shorten_here = dialect().shorten_here
    restore = None if shorten_here else dialect().shorten_session(run)
    with ExitStack() as session:
        if restore is not None:
            session.callback(run, restore)
        try:
            with atomic():
                if shorten_here is not None:
                    run(shorten_here)
                done = use_case()
                session.close()  # hooks that run after the commit have the session as it was before
                return done
        except OperationalError as error:
            if not is_contention(error):
                raise
            return None


def run(sql: str) -> object:
    """Run a statement; return the value that it gives, if it gives one."""
    with connection().cursor() as cursor:
        cursor.execute(sql)
        found = cursor.fetchone() if cursor.description else None
    return found and found[0]


# The engine's clock, which follows the database's, so that hosts with wrong clocks cannot steal leases

#: Seconds after which the database is asked again.
REFRESH_AFTER = 60.0
#: Seconds by which more or less time may have passed for the database than for this host. Beyond that, one of
#: their clocks was set, or the host has slept.
STEP = 2.0


class Clock:
    """Tells the time. Once synchronised it runs on the monotonic clock, so a host's clock may be changed."""

    def __init__(self) -> None:
        #: A moment of the database, and when it was asked for and told.
        self._anchor: tuple[datetime, float, float] | None = None
        self._shift = timedelta()
        #: The part of the shift that lasts longer than a test.
        self._kept = timedelta()
        #: When the database's clock was last found to have been set, by the monotonic clock.
        self.stepped_at = float("-inf")

    def now(self) -> datetime:
        """Return the present moment, aware, in UTC."""
        anchor = self._anchor
        if anchor is None:
            return datetime.now(UTC) + self._shift
        moment, _, tick = anchor
        return moment + timedelta(seconds=time.monotonic() - tick) + self._shift

    def read(self) -> datetime:
        """Synchronise, and return the present moment: where a process that is no worker counts from it."""
        self.synchronise()
        return self.now()

    def synchronise(self) -> None:
        """Set the clock to the database's, unless that was done within the last minute.

        A monotonic clock that went back, or far ahead, was frozen by a test.

        Threads that measure at the same time do not wait for each other: each sets one attribute, and any of
        their measurements will do.
        """
        anchor = self._anchor
        if anchor is None or not 0 <= time.monotonic() - anchor[2] <= REFRESH_AFTER:
            self.measure()

    def measure(self) -> None:
        """Set the clock to the database's, and note it if that was set since the last time."""
        former, asked = self._anchor, time.monotonic()
        moment, told = database_now(), time.monotonic()
        self._anchor = (moment, asked, told)
        if former is not None:
            passed = (moment - former[0]).total_seconds()
            if not asked - former[2] - STEP <= passed <= told - former[1] + STEP:
                self.stepped_at = told

    def shift(self, by: timedelta, keep: bool = False) -> None:
        """Move the clock (tests travel in time); ``keep`` lets :meth:`reset` keep the shift."""
        self._shift += by
        if keep:
            self._kept += by

    def reset(self, keep: bool = True) -> None:
        """Forget the database's clock and every shift, without ``keep`` those that were kept, too."""
        if not keep:
            self._kept = timedelta()
        self._shift = self._kept
        self._anchor = None
        self.stepped_at = float("-inf")


def database_now() -> datetime:
    """Ask the database for the time."""
    statement = dialect().now
    if statement is None:
        return datetime.now(UTC)
    moment: datetime = fetch(statement, ())[0][0]
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


clock = Clock()
