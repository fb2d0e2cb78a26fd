"""The engine's own sessions with the database, bounded in every wait."""

from __future__ import annotations

import os
import socket
from collections.abc import Generator
from contextlib import contextmanager, suppress
from copy import deepcopy
from typing import Any, NamedTuple

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.db.migrations.executor import MigrationExecutor

from django_ayework.conf import get_settings
from django_ayework.heartbeat import beat_before, current_heartbeat
from django_ayework.models import Work
from django_ayework.store.database import alias, connection, fetch
from django_ayework.store.prepared import note_own_session, session_of

# --- sessions ---
# The engine's own sessions with the database: none waits for ever, for a statement, a lock, or an answer.
#
# The threads that claim, settle and keep leases have connections of their own, outside of any pool.
# Handlers
# have others, which are left as the project has set them.

#: Seconds that a thread which others need waits for a row that somebody else has locked. Less than
#: PostgreSQL's deadlock_timeout (1 s): the engine's transaction gives way before a caller's is chosen as the
#: victim of a deadlock. MySQL and MariaDB count whole seconds.
LOCK_TIMEOUT = 0.25
#: Seconds to open a session, unless the project says otherwise.
CONNECT_TIMEOUT = 10

#: The server tells a pooler's client a process that is not the one it talks to: a pooler lends each
#: transaction another session, and what is set in one would be left for strangers. JIT costs over a second
#: on the first statement over many rows, and gains nothing on statements over few. Every statement of ours
#: has an index; a plan that is kept from when a table was empty would scan it. Rows are looked up one by one,
#: where a bitmap costs half as much again as the row; without statistics the planner expects more of each.
#: Plans of prepared statements are kept: the server would make them anew each time where it expects to gain
#: by that, which takes longer than to run them. A transaction that a vanished process leaves open ends by
#: itself, and gives its locks back.
POSTGRESQL = """
SELECT set_config('statement_timeout', %s, false),
       set_config('lock_timeout', %s, false),
       set_config('idle_in_transaction_session_timeout', %s, false),
       CASE WHEN current_setting('jit', true) = 'on' THEN set_config('jit', 'off', false) END,
       set_config('enable_seqscan', 'off', false),
       set_config('enable_bitmapscan', 'off', false),
       set_config('plan_cache_mode', 'force_generic_plan', false)
WHERE pg_backend_pid() = %s
"""
MARIADB = "SET SESSION max_statement_time = %s, idle_transaction_timeout = %s"
MYSQL = "SET SESSION max_execution_time = %s"  # covers SELECT alone
LOCK_WAIT = ", innodb_lock_wait_timeout = 1"

#: Where a connection of the engine's own keeps its bounds.
ATTRIBUTE = "_ayework_bounds"


class Bounds(NamedTuple):
    """What a session of the engine's own waits for at most, in seconds; None for any time."""

    statement: float | None
    lock: float | None


@contextmanager
def engine_session(waits_for_locks: bool = False) -> Generator[None]:
    """Give the calling thread a connection of the engine's own to the queue's database, until the end.

    It is opened when it is first used. With ``waits_for_locks`` a locked row is waited for: for threads that
    nobody else needs.
    """
    name = alias()
    before = next((each for each in connections.all(initialized_only=True) if each.alias == name), None)
    own = own_connection(
        name, Bounds(get_settings().statement_timeout, None if waits_for_locks else LOCK_TIMEOUT)
    )
    connections[name] = own
    try:
        yield
    finally:
        own.close()
        if before is None:
            del connections[name]
        else:
            connections[name] = before


def own_connection(name: str, bounds: Bounds) -> BaseDatabaseWrapper:
    """Return a connection that is not from Django's pool, and that fails rather than waits for ever."""
    own = connections.create_connection(name)
    own.settings_dict = deepcopy(own.settings_dict)
    options = own.settings_dict["OPTIONS"]
    options.pop("pool", None)
    if own.vendor in ("postgresql", "mysql"):
        options.setdefault("connect_timeout", CONNECT_TIMEOUT)
    own.execute_wrappers.append(beat_before)
    setattr(own, ATTRIBUTE, bounds)
    return own


def set_up_session(sender: object, connection: Any, **kwargs: object) -> None:
    """Set up a session that was just opened, if it is the engine's: one statement per connection."""
    bounds: Bounds | None = getattr(connection, ATTRIBUTE, None)
    if bounds is None or (setting := statement_for(connection, bounds)) is None:
        return
    if (heartbeat := current_heartbeat()) is not None:
        heartbeat.socket = number_of_socket(connection.connection)
    with connection.cursor() as cursor:
        cursor.execute(*setting)
        if connection.vendor == "postgresql" and cursor.fetchone() is not None:
            note_own_session(connection)


def bound_transaction() -> None:
    """Bound the locks that the transaction at hand waits for, where a pooler lends the session.

    Such a session could not be set up for good. Handlers' sessions are left alone.
    """
    database = connection()
    bounds: Bounds | None = getattr(database, ATTRIBUTE, None)
    if (
        bounds is None
        or bounds.lock is None
        or database.vendor != "postgresql"
        or session_of(database).is_own
    ):
        return
    with database.cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [in_ms(bounds.lock)])


def statement_for(connection: Any, bounds: Bounds) -> tuple[str, list[Any]] | None:
    """Return the statement that bounds all later ones, where the database has such a thing."""
    statement = bounds.statement or 0.0
    if connection.vendor == "postgresql":
        server = connection.connection.info.backend_pid
        return POSTGRESQL, [in_ms(statement), in_ms(bounds.lock or 0.0), in_ms(statement), server]
    if connection.vendor != "mysql":
        return None
    lock_wait = LOCK_WAIT if bounds.lock else ""
    if connection.mysql_is_mariadb:
        return MARIADB + lock_wait, [statement, max(1, round(statement)) if statement else 0]
    return MYSQL + lock_wait, [round(statement * 1000)]


def in_ms(seconds: float) -> str:
    """Return seconds as PostgreSQL's settings have them; 0 is no bound.

    >>> in_ms(2.5), in_ms(0.0)
    ('2500ms', '0')
    """
    return f"{max(1, round(seconds * 1000))}ms" if seconds else "0"


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

# --- server ---
# The database server, as somebody who is about to start workers needs to know it.

#: How many connections a server takes, by vendor.
MOST_CONNECTIONS = {
    "postgresql": "SELECT current_setting('max_connections')",
    "mysql": "SELECT @@max_connections",
}
#: psycopg's own default.
POOL_SIZE = 4


#: What each server calls its isolation level. On PostgreSQL the driver may choose one for transactions, apart
#: from that of statements outside of them; MariaDB and MySQL have different names for theirs.
ISOLATION = {
    "postgresql": (
        "SELECT current_setting('transaction_isolation'), current_setting('default_transaction_isolation')"
    ),
    "mysql": "SHOW VARIABLES WHERE Variable_name IN ('tx_isolation', 'transaction_isolation')",
}


def isolation_levels(database: BaseDatabaseWrapper) -> list[str]:
    """Return the isolation levels of a connection: of its transactions, and of statements outside of them."""
    if database.vendor not in ISOLATION:
        return []
    with transaction.atomic(using=database.alias), database.cursor() as cursor:
        cursor.execute(ISOLATION[database.vendor])
        row = cursor.fetchone()
    levels = row if database.vendor == "postgresql" else row[1:]
    return [str(level).lower().replace("-", " ") for level in levels]


def name_of_server() -> str:
    """Return what the database is, once it has answered."""
    fetch("SELECT 1", ())
    return connection().display_name


def missing_migrations() -> list[str]:
    """Return the migrations of this app that were not applied."""
    executor = MigrationExecutor(connection())
    label = Work._meta.app_label
    targets = [node for node in executor.loader.graph.leaf_nodes() if node[0] == label]
    return [step.name for step, _ in executor.migration_plan(targets) if step.app_label == label]


def most_connections() -> int | None:
    """Return how many connections the server takes, of everybody; None where there is no such bound."""
    statement = MOST_CONNECTIONS.get(connection().vendor)
    return None if statement is None else int(fetch(statement, ())[0][0])


def pool_size() -> int | None:
    """Return how many connections the pool of a process has, where Django is told to keep one."""
    pool: Any = connection().settings_dict["OPTIONS"].get("pool")
    if not pool:
        return None
    given = pool if isinstance(pool, dict) else {}
    smallest = given.get("min_size", POOL_SIZE)
    return int(given.get("max_size") or smallest)
