"""Connections: which a thread has open, what a handler leaves on them, what the engine prepares on them."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from django.db import Error, connections, reset_queries, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from django_ayework.compat import (
    blocks_of,
    commits_on_exit,
    had_error,
    is_broken,
    is_outlived,
    keep_open,
    outlive,
    statement_wrappers,
)
from django_ayework.documentation import logged
from django_ayework.errors import AyeworkError
from django_ayework.heartbeat import beat, beat_before, current_heartbeat, taking_any_time
from django_ayework.logs import logger

T = TypeVar("T")

#: libpq: a statement runs, a transaction is open, a transaction has failed.
IN_TRANSACTION = frozenset({1, 2, 3})
FAILED = 3

#: Where a session of the engine's own keeps its bounds.
BOUNDS = "_ayework_bounds"
#: Where Django opens connections, behind its check for coroutines.
CONNECT = inspect.unwrap(BaseDatabaseWrapper.connect).__code__


class _Thread(threading.local):
    """This thread; made when it is first asked about."""

    def __init__(self) -> None:
        self.has_connected = bool(connections.all(initialized_only=True))


_this_thread = _Thread()


def failed_to_connect(error: BaseException) -> str | None:
    """Return the alias of the database to which an error kept a thread from connecting; None for others.

    The server refused it or has no room for it, a pool was empty, or the process has no file left to open.
    Only the traceback tells, for any driver. A timeout of the work that comes there is no such error.
    """
    if not isinstance(error, (Error, OSError)) or isinstance(error, AyeworkError):
        return None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code is CONNECT:
            alias: str = frame.f_locals["self"].alias
            return alias
    return None


def note_connection(**kwargs: object) -> None:
    """Note that this thread has connected, or may have: an attempt failed there.

    Django keeps a connection that breaks while it is set up, and sends no signal.
    """
    _this_thread.has_connected = True


connection_created.connect(note_connection, dispatch_uid="django_ayework.store.connections")


def has_connected() -> bool:
    """Tell whether this thread may have a connection; one that never had can tell at no cost."""
    return _this_thread.has_connected


def read(ask: Callable[[], T]) -> T:
    """Read from the database, in a thread of its own where an event loop runs."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return ask()
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(read_and_close, ask).result()


def read_and_close(ask: Callable[[], T]) -> T:
    """Read in a thread that ends afterwards."""
    try:
        return ask()
    finally:
        close_all_connections()


def close_all_connections() -> None:
    """Close this thread's connections; a driver may fail to close one that has ended, and Django drops it."""
    for connection in connections.all(initialized_only=True):
        with suppress(Exception):
            connection.close()


def tidy_connections(at_age_0: Callable[[BaseDatabaseWrapper], object] = outlive) -> None:
    """Drop this thread's connections that are of no more use, and the query log that DEBUG keeps.

    A connection on which an error occurred may answer and lead to a server that has become read-only, while
    a new one leads to its successor. ``at_age_0`` is called with each connection whose ``CONN_MAX_AGE`` is 0.
    A session of the engine's own ends at its age only: its thread replaces it after an error.
    """
    for connection in connections.all(initialized_only=True):
        if hasattr(connection, BOUNDS):
            if is_outlived(connection) and not connection.in_atomic_block:
                drop(connection)
            continue
        if connection.settings_dict.get("CONN_MAX_AGE") == 0:
            at_age_0(connection)
        if (had_error(connection) or is_closed(connection)) and not connection.in_atomic_block:
            drop(connection)
        connection.close_if_unusable_or_obsolete()
    reset_queries()


def close_for_good(connection: Any) -> None:
    """Close a connection so that a pool lends it to nobody."""
    if getattr(connection, "pool", None) is not None and connection.connection is not None:
        connection.connection.close()
    connection.close()


def drop(connection: Any) -> None:
    """Close a connection for good. A driver may fail to close one that has ended; Django forgets it then."""
    with suppress(Exception):
        close_for_good(connection)


def keep_connections() -> None:
    """Do the same while more is to come; a thread that never had a connection does so at no cost.

    An age of 0 means that a connection ends with what it was opened for. Here that is a run of works, so it
    is left for ``tidy_connections``, which follows the last of them.
    """
    if has_connected():
        tidy_connections(keep_open)


def left_behind(connection: Any) -> str:
    """Return what a work has left on a connection that would reach into the next one; no statement is sent.

    An attribute of the driver tells of a transaction that was begun by SQL; MySQL's has none.
    """
    if connection.in_atomic_block:
        return "a transaction open"
    if connection.connection is None:
        return ""
    if connection.autocommit != connection.settings_dict.get("AUTOCOMMIT", True):
        return "autocommit switched"
    if is_broken(connection):
        return "a transaction to roll back"
    try:
        return "a transaction open" if connection.autocommit and has_begun(connection) else ""
    except connection.Database.Error:  # the driver has closed it
        return "no session"


def has_failed(connection: Any) -> bool:
    """Tell whether an error has spoilt the transaction on the server."""
    if connection.vendor != "postgresql" or connection.connection is None:
        return False
    return int(connection.connection.info.transaction_status) == FAILED


def has_begun(connection: Any) -> bool:
    """Tell whether the driver is inside a transaction."""
    if connection.vendor == "postgresql":
        return int(connection.connection.info.transaction_status) in IN_TRANSACTION
    return connection.vendor == "sqlite" and bool(connection.connection.in_transaction)


def is_closed(connection: Any) -> bool:
    """Tell whether the driver's connection was closed without Django, which would go on using it."""
    driver = connection.connection
    if driver is None:
        return False
    if connection.vendor == "postgresql":
        return bool(driver.closed)
    if connection.vendor == "sqlite":  # which has no attribute for it
        try:
            return driver.in_transaction is None
        except connection.Database.ProgrammingError:
            return True
    return connection.vendor == "mysql" and not driver.open


def defuse(block: Any) -> None:
    """Keep a block of ``transaction.atomic()`` that was left open from ending another transaction.

    The generator that holds it may be closed at any time, in any thread, and Django would then end whatever
    that thread has open. Now it fails, as there is no database of that name.
    """
    block.using = "(closed by django_ayework, as a work had left it open)"


def unwound(connection: BaseDatabaseWrapper, depth: int, error: BaseException | None = None) -> bool:
    """Roll back blocks of ``transaction.atomic()`` that were left open inside; return whether any were."""
    blocks = blocks_of(connection)
    left = len(blocks) > depth
    while len(blocks) > depth:
        block = blocks[-1]
        block.__exit__(Error, error or Error("left open"), None)
        defuse(block)
    return left


class Transaction(transaction.Atomic):
    """A block of ``transaction.atomic()`` after which a connection that broke can be replaced.

    If a connection breaks as the block switches autocommit on again, Django leaves it off. The next block
    would take that for a transaction of the caller's own, fail at its savepoint, and stay open for ever.
    """

    def __init__(self, alias: str) -> None:
        super().__init__(alias, savepoint=True, durable=False)

    def __enter__(self) -> None:
        try:
            super().__enter__()
        except BaseException:
            leave_replaceable(connections[str(self.using)])
            raise

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            super().__exit__(kind, error, trace)
        except BaseException:
            leave_replaceable(connections[str(self.using)])  # which raises for a block that was defused
            raise


def leave_replaceable(database: BaseDatabaseWrapper) -> None:
    """Leave no block open that did not begin, and close a connection that has left its last one broken.

    A transaction of the caller's own is the caller's to end: to close it would drop its rows unnoticed.
    """
    if blocks_of(database):
        return
    database.in_atomic_block = False
    if commits_on_exit(database) and not database.autocommit:
        drop(database)


# Code of the project's, which runs in threads of the engine, between statements of the engine or of a handler


@contextmanager
def project_code() -> Generator[None]:
    """Let code of the project's run, which may take any time; undo what it leaves in this thread.

    Inside of a transaction that is left open the engine, a handler or a callback would go on and commit
    nothing.
    """
    process, before = os.getpid(), open_blocks()
    try:
        with taking_any_time():
            yield
    finally:
        end_if_forked(process, "A receiver, a hook or a function of a schedule")
        undo_leftovers(before)
        if current_heartbeat() is not None:
            keep_connections()


def open_blocks() -> dict[str, int | None]:
    """Return how many transactions and savepoints each connection of this thread is inside of.

    None is for one that was left in another state before, such as a transaction that SQL has begun.
    """
    blocks = {each: len(blocks_of(each)) for each in connections.all(initialized_only=True)}
    return {each.alias: depth or (None if left_behind(each) else 0) for each, depth in blocks.items()}


def undo_leftovers(before: Mapping[str, int | None]) -> None:
    """Roll back what was begun since and is still open; connections that had no transaction keep none."""
    for connection in connections.all(initialized_only=True):
        depth = before.get(connection.alias, 0)
        if depth is None:
            continue
        if is_closed(connection):
            leave_replaceable(connection)
            drop(connection)  # also within a transaction, which Django then takes for broken
        left = "" if depth else left_behind(connection)
        if unwound(connection, depth) or left:
            logger.error(
                "A receiver, a hook or a function of a schedule has left a transaction open on the "
                "connection %r; it is rolled back. %s",
                connection.alias, logged("session-left-open"),
            )  # fmt: skip
        if left:
            leave_replaceable(connection)
            drop(connection)


def end_if_forked(from_process: int, forked_by: str) -> None:
    """End a process that code of the project's has forked, and that comes back from that code.

    It has none of the engine's threads, so it would wait for ever. It shares the connections of its parent,
    where it could settle the work, or end the session.
    """
    if os.getpid() != from_process:
        logger.error(
            "%s returned or raised in a process that it had forked: %d ends here. %s",
            forked_by, os.getpid(), logged("forked-process-ended"), exc_info=True,
        )  # fmt: skip
        os._exit(1)


# Prepared statements

#: A connection that lives for one short request is not worth a statement that is prepared.
WORTHWHILE = 3
#: Lets an INSERT return the id of its session, which saves a statement.
BACKEND = " RETURNING pg_backend_pid()"
#: No statement runs so often. Django's None says the same, but with that the driver does not notice either
#: that the project takes away what is prepared, by ``DISCARD ALL`` or ``DEALLOCATE ALL``.
NEVER = 2**62
#: The attribute of Django's connection that holds its ``Session``, so that a look-up costs next to nothing.
ATTRIBUTE = "_ayework_session"


class Session:
    """The session that Django's connection has at the moment.

    Its cursor is kept: to make one costs more than most statements here do.
    """

    __slots__ = ("can_prepare", "connection", "cursor", "is_own", "uses")

    def __init__(self, database: Any, is_own: bool = False) -> None:
        may_ask = takes_prepared(database)
        self.connection = database.connection  # the driver's
        self.is_own = is_own and may_ask  # the engine's own, direct, and set to scan no tables
        #: None until an INSERT has returned the server's process.
        self.can_prepare: bool | None = self.is_own or (None if may_ask else False)
        self.uses = 0
        self.cursor: Any = None


def takes_prepared(database: Any) -> bool:
    """Tell whether statements can be prepared there, as far as the settings tell."""
    return (
        database.vendor == "postgresql"
        and database.Database.__name__ == "psycopg"
        and not database.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS")
    )


def note_own_session(database: Any) -> None:
    """Note that the session is the engine's own, direct, and set to scan no tables."""
    setattr(database, ATTRIBUTE, Session(database, is_own=True))


def run_prepared(database: Any, sql: str, params: Sequence[Any], needs_plan: bool = True) -> Any:
    """Run a prepared statement on the driver's cursor, and return the cursor.

    Return None when the connection cannot prepare it: the caller runs it on Django's cursor then. The next
    statement uses the same cursor, so read the rows before.
    """
    session = session_of(database)
    may_prepare = session.can_prepare is True and (session.is_own or not needs_plan)
    if not may_prepare or is_watched(database):
        return None
    if is_broken(database):
        database.validate_no_broken_transaction()
    try:
        return executed(session, sql, params)
    except Exception:
        with database.wrap_database_errors:  # entered only now: it does something for errors alone
            raise


def keeps_plans(database: Any) -> bool:
    """Tell whether this is a session of the engine's own, which plans a statement once and for all."""
    return session_of(database).is_own and not is_watched(database)


def is_watched(database: Any) -> bool:
    """Tell whether somebody watches what Django's cursors run."""
    watched = any(wrapper is not beat_before for wrapper in statement_wrappers(database))
    return bool(watched or database.queries_logged)


def session_of(database: Any) -> Session:
    """Return the session, which is opened if the connection has none."""
    if database.connection is None:
        database.ensure_connection()  # which may note the session
    session: Session | None = getattr(database, ATTRIBUTE, None)
    if session is None or session.connection is not database.connection:
        session = Session(database)
        setattr(database, ATTRIBUTE, session)
    return session


def asks_for_backend(database: Any) -> bool:
    """Tell whether the INSERT at hand is to return the server's process: once, after a few others."""
    session = session_of(database)
    if session.can_prepare is not None or is_watched(database):
        return False
    session.uses += 1
    return session.uses >= WORTHWHILE


def note_backend(database: Any, row: tuple[int] | None) -> None:
    """Note what an INSERT has returned; nothing, when it made no row.

    A pooler names a process to its clients that is not the server's.
    """
    if row is not None:
        session_of(database).can_prepare = row[0] == database.connection.info.backend_pid


def executed(session: Session, sql: str, params: Sequence[Any]) -> Any:
    """Run a statement, prepared, which Django has switched off for everything that its own cursors run."""
    beat()
    connection = session.connection
    if session.cursor is None:
        session.cursor = new_cursor(connection)
    threshold = connection.prepare_threshold
    connection.prepare_threshold = 0
    try:
        return session.cursor.execute(sql, params, prepare=True)
    finally:
        connection.prepare_threshold = NEVER if threshold is None else threshold


def new_cursor(connection: Any) -> Any:
    """Return a cursor whose parameters go beside the statement; moments are read by the driver's own code."""
    from psycopg import Cursor  # the driver may be missing
    from psycopg.types.datetime import TimestamptzLoader

    cursor: Any = Cursor(connection)
    cursor.adapters.register_loader("timestamptz", TimestamptzLoader)
    return cursor
