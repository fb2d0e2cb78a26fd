"""The engine's own sessions with the database, and what the server says about itself.

The threads that claim, settle and renew leases have connections of their own, outside of any pool. No session
of theirs waits for ever: for a statement, a lock, or an answer. Handlers have other connections, which are
left as the project has set them.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from django.db import DataError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.db.migrations.executor import MigrationExecutor

from django_ayework.compat import after_fork_in_child, statement_wrappers
from django_ayework.conf import get_settings
from django_ayework.documentation import documented
from django_ayework.heartbeat import Heartbeat, beat_before, current_heartbeat
from django_ayework.models import Work
from django_ayework.store.connections import BOUNDS, note_own_session, session_of
from django_ayework.store.database import alias, connection, dialect, fetch
from django_ayework.store.dialects import Bounds, dialect_of, in_ms

#: Seconds that a thread which others need waits for a row that somebody else has locked. Less than
#: PostgreSQL's deadlock_timeout (1 s): the engine's transaction gives way before a caller's is chosen as the
#: victim of a deadlock. MySQL and MariaDB count whole seconds.
LOCK_TIMEOUT = 0.25
#: Seconds to open a session, unless the project says otherwise.
CONNECT_TIMEOUT = 10
#: Seconds after which a session ends at the next rest of its thread. One that only reads meets no error on a
#: server that others have left: its address leads to another one, and nobody enqueues here any more.
LONGEST_KEPT = 30

#: Characters of the texts of a statement that is not too large for any server.
SMALL = 100_000

#: The label of this app.
LABEL = Work._meta.app_label


@contextmanager
def engine_session(waits_for_locks: bool = False, statement_timeout: int | None = None) -> Generator[None]:
    """Give the calling thread a connection of the engine's own to the queue's database, until the end.

    It is opened when it is first used. With ``waits_for_locks`` a locked row is waited for: for threads that
    nobody else needs. ``statement_timeout`` is a shorter bound than that of the settings, in seconds; the
    session is opened within it, too.
    """
    name = alias()
    before = next((each for each in connections.all(initialized_only=True) if each.alias == name), None)
    timeouts = [each for each in (get_settings().statement_timeout, statement_timeout) if each is not None]
    bounds = Bounds(min(timeouts, default=None), None if waits_for_locks else LOCK_TIMEOUT)
    own = own_connection(name, bounds, statement_timeout or CONNECT_TIMEOUT)
    connections[name] = own
    try:
        yield
    finally:
        own.close()
        if before is None:
            del connections[name]
        else:
            connections[name] = before


@dataclass(eq=False)
class CountingThread:
    """A thread of a doer that counts for all processes. A worker of its process watches it."""

    heartbeat: Heartbeat
    #: It ends when it is not used.
    is_gone: bool = False


#: Those of this process.
counting_threads: set[CountingThread] = set()
after_fork_in_child(counting_threads.clear)


@contextmanager
def counting_session() -> Generator[None]:
    """Give the calling thread of a doer a session of the engine's own, and let workers watch the thread."""
    thread = CountingThread(Heartbeat("doer"))
    with thread.heartbeat.of_this_thread(), engine_session(waits_for_locks=True):
        counting_threads.add(thread)
        try:
            yield
        finally:
            counting_threads.discard(thread)


def own_connection(name: str, bounds: Bounds, connect_timeout: int = CONNECT_TIMEOUT) -> BaseDatabaseWrapper:
    """Return a connection that is not from Django's pool, and that fails rather than waits for ever.

    It opens within ``connect_timeout`` seconds, unless the project says otherwise.
    """
    own = connections.create_connection(name)
    options = {name: value for name, value in own.settings_dict["OPTIONS"].items() if name != "pool"}
    own.settings_dict = own.settings_dict | {"CONN_MAX_AGE": None, "OPTIONS": options}
    if own.vendor in ("postgresql", "mysql"):  # SQLite connects to no server
        options.setdefault("connect_timeout", connect_timeout)
        own.settings_dict["CONN_MAX_AGE"] = LONGEST_KEPT
    statement_wrappers(own).append(beat_before)
    if own.vendor == "mysql":
        statement_wrappers(own).append(refuse_too_large)
    setattr(own, BOUNDS, bounds)
    return own


def refuse_too_large(run: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
    """Raise DataError for a statement that is larger than the server takes, which would end the session.

    The driver often reports error 2006 for it, as for a server that is away.
    """
    texts = [each for each in params or () if isinstance(each, str)]
    if sum(map(len, texts)) > SMALL:
        server = context["connection"].connection
        with server.cursor() as cursor:
            cursor.execute("SELECT @@max_allowed_packet")
            [most] = cursor.fetchone()
        if (size := sum(len(server.literal(text)) for text in texts)) > most:
            raise documented(
                DataError(
                    f"expected a statement of at most {most} bytes (max_allowed_packet), got: {size} bytes; "
                    "raise max_allowed_packet, or lower AYEWORK['MAX_PAYLOAD']."
                ),
                "packet-too-large",
            )
    return run(sql, params, many, context)


def set_up_session(sender: object, connection: Any, **kwargs: object) -> None:
    """Set up a session that was just opened, if it is the engine's: one statement per connection."""
    bounds: Bounds | None = getattr(connection, BOUNDS, None)
    if bounds is None:
        return
    dialect = dialect_of(connection.settings_dict["ENGINE"])
    if (setup := dialect.session_setup(connection, bounds)) is None:
        return
    if (heartbeat := current_heartbeat()) is not None:
        heartbeat.socket = number_of_socket(connection.connection)
    with connection.cursor() as cursor:
        cursor.execute(*setup)
        if dialect.has_arrays and cursor.fetchone() is not None:  # no row: a pooler lends its session
            note_own_session(connection)


def bound_transaction() -> None:
    """Bound the locks that the transaction at hand waits for, where a pooler lends the session.

    Such a session could not be set up for good. Handlers' sessions are left alone.
    """
    database = connection()
    bounds: Bounds | None = getattr(database, BOUNDS, None)
    if bounds is None or bounds.lock is None or not dialect().has_arrays or session_of(database).is_own:
        return
    with database.cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [in_ms(bounds.lock)])


def number_of_socket(raw: Any) -> tuple[int, int] | None:
    """Return the number of the socket of a driver's connection, and the inode that tells it from a later one.

    Drivers tell it to the thread that uses the connection, and to no other.
    """
    number = raw.fileno() if hasattr(raw, "fileno") else None
    return None if number is None else (number, os.fstat(number).st_ino)


def cut(known: tuple[int, int] | None) -> bool:
    """Shut down the socket of a connection whose answer another thread waits for; return whether it is there.

    The driver then raises in that thread, as it does when the server has gone.
    """
    if known is None:
        return False
    number, inode = known
    with suppress(OSError):  # the driver may have closed it by now
        if os.fstat(number).st_ino == inode:
            with socket.socket(fileno=os.dup(number)) as end:
                end.shutdown(socket.SHUT_RDWR)
            return True
    return False


connection_created.connect(set_up_session, dispatch_uid="django_ayework.sessions")

#: psycopg's own default.
POOL_SIZE = 4


def isolation_levels(database: BaseDatabaseWrapper) -> list[str]:
    """Return the isolation levels of a connection: of its transactions, and of statements outside of them."""
    statement = dialect_of(database.settings_dict["ENGINE"]).isolation_levels
    if statement is None:
        return []
    with transaction.atomic(using=database.alias), database.cursor() as cursor:
        cursor.execute(statement)
        _, *levels = cursor.fetchone()
    return [str(level).lower().replace("-", " ") for level in levels]


def narrow_charset(database: BaseDatabaseWrapper) -> str | None:
    """Return the character set of a connection that does not carry every character; None for others."""
    statement = dialect_of(database.settings_dict["ENGINE"]).charset
    if statement is None:
        return None
    with database.cursor() as cursor:
        cursor.execute(statement)
        [charset] = cursor.fetchone()
    return None if charset == "utf8mb4" else str(charset)


def name_of_server() -> str:
    """Return what the database is, once it has answered."""
    fetch("SELECT 1", ())
    return connection().display_name


def missing_migrations() -> list[str]:
    """Return the migrations of this app that were not applied."""
    executor = MigrationExecutor(connection())
    targets = [node for node in executor.loader.graph.leaf_nodes() if node[0] == LABEL]
    return [step.name for step, _ in executor.migration_plan(targets) if step.app_label == LABEL]


def has_tables() -> bool:
    """Tell whether works have a table. A migration that a router refuses is recorded, and makes none."""
    return Work._meta.db_table in connection().introspection.table_names()


def most_connections() -> int | None:
    """Return how many connections the server takes, of everybody; None where there is no such bound."""
    statement = dialect().most_connections
    return None if statement is None else int(fetch(statement, ())[0][0])


def pool_size() -> int | None:
    """Return how many connections the pool of a process has, where Django keeps one."""
    pool: Any = connection().settings_dict["OPTIONS"].get("pool")
    if not pool:
        return None
    given = pool if isinstance(pool, dict) else {}
    smallest = given.get("min_size", POOL_SIZE)
    return int(given.get("max_size") or smallest)
