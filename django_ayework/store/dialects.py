"""What the databases differ in: one object for each kind of database, chosen once.

Whole statements stand where they are used. A choice between two of them asks what the dialect can do, never
for the name of a database. Short pieces of SQL, error codes and session settings stand here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, NamedTuple

from django.db.utils import load_backend

#: Milliseconds that a transaction waits for a lock where its work can as well be done later. PostgreSQL looks
#: for deadlocks after a second (``deadlock_timeout``), and picks any victim. A transaction that gives up
#: before that never makes a caller's transaction the victim.
SHORT_WAIT = 250


class Bounds(NamedTuple):
    """How long a session of the engine waits for a statement and for a lock, in seconds; None: no bound."""

    statement: float | None
    lock: float | None


class Dialect:
    """A kind of database, as raw statements need to know it. The defaults are those of SQLite."""

    #: One statement can lock, update and return the rows that arrays name.
    has_arrays: ClassVar[bool] = False
    #: A recursive query uses an index for a bound that the row before it gives.
    recurses_by_index: ClassVar[bool] = True
    #: An INSERT that makes no row where its key exists: the verb, and what ends the statement.
    insert_ignore: ClassVar[tuple[str, str]] = ("INSERT", "ON CONFLICT DO NOTHING")
    #: What comes before the changes of an INSERT that updates the row where its key exists.
    on_conflict_update: ClassVar[str] = "ON CONFLICT ({key}) DO UPDATE SET"
    #: Ends a SELECT that locks its rows and skips locked ones. SQLite has one lock for all rows.
    skip_locked: ClassVar[str] = ""
    #: A locking SELECT meets rows that other transactions have inserted and not committed.
    locks_uncommitted: ClassVar[bool] = False
    #: A moment as text, for drivers that are slow to make moments.
    moment_as_text: ClassVar[str] = "CAST({} AS TEXT)"
    #: Reads the server's clock. None: the database runs on this host.
    now: ClassVar[str | None] = None
    #: Reads how many connections the server takes in all. None: there is no such bound.
    most_connections: ClassVar[str | None] = None
    #: Reads a name, then the isolation levels of transactions, and of statements outside of them if those
    #: have one of their own. None: there is only one.
    isolation_levels: ClassVar[str | None] = None
    #: Shortens the lock waits of one transaction. None: only those of a session can be shortened.
    shorten_here: ClassVar[str | None] = None
    #: Errors of a transaction that was ended for the sake of another one.
    collision_codes: ClassVar[frozenset[object]] = frozenset()
    #: Errors of a lock that another transaction holds.
    lock_codes: ClassVar[frozenset[object]] = frozenset()
    #: Errors of a statement that took longer than its bound.
    timeout_codes: ClassVar[frozenset[object]] = frozenset()

    def __init__(self) -> None:
        #: ``UPDATE … RETURNING`` exists; SQLite brought it with 3.35.
        self.returns_updated = sqlite3.sqlite_version_info >= (3, 35)

    def refuses_data(self, code: object) -> bool:
        """Tell whether an error code says that the values themselves are refused, and would be again."""
        return False

    def session_setup(self, connection: Any, bounds: Bounds) -> tuple[str, list[Any]] | None:
        """Return the statement that sets up a session of the engine, with its parameters, if there is one."""
        return None

    def shorten_session(self, run: Callable[[str], object]) -> str:
        """Shorten the lock waits of the session; return the statement that restores them."""
        before = run("PRAGMA busy_timeout")
        run(f"PRAGMA busy_timeout = {SHORT_WAIT}")
        return f"PRAGMA busy_timeout = {before}"


class PostgreSQL(Dialect):
    """PostgreSQL."""

    has_arrays = True
    skip_locked = "FOR UPDATE SKIP LOCKED"
    now = "SELECT clock_timestamp()"
    most_connections = "SELECT current_setting('max_connections')"
    #: The driver may choose a level for transactions, apart from that of statements outside of them.
    isolation_levels = (
        "SELECT '', current_setting('transaction_isolation'), "
        "current_setting('default_transaction_isolation')"
    )
    shorten_here = f"SET LOCAL lock_timeout = {SHORT_WAIT}"
    collision_codes = frozenset({"40001", "40P01"})  # serialization failure, deadlock
    lock_codes = frozenset({"55P03"})  # lock not available
    timeout_codes = frozenset({"57014"})  # query canceled

    #: The process is compared because a pooler lends each transaction another session, and tells its clients
    #: a process of its own: settings would stay behind for strangers. JIT costs over a second on the first
    #: statement over many rows, and gains nothing on statements over few. Every statement of the engine has
    #: an index; a plan that is kept from when a table was empty would scan it. Rows are looked up one by one,
    #: where a bitmap costs half as much again as the row; without statistics the planner expects more of
    #: each. Plans of prepared statements are kept: the server would make them anew each time where it expects
    #: to gain by that, which takes longer than to run them. A transaction that a vanished process leaves open
    #: ends by itself, and gives its locks back.
    SETUP = """
    SELECT set_config('statement_timeout', %s, false),
           set_config('lock_timeout', %s, false),
           set_config('idle_in_transaction_session_timeout', %s, false),
           CASE WHEN current_setting('jit', true) = 'on' THEN set_config('jit', 'off', false) END,
           set_config('enable_seqscan', 'off', false),
           set_config('enable_bitmapscan', 'off', false),
           set_config('plan_cache_mode', 'force_generic_plan', false)
    WHERE pg_backend_pid() = %s
    """

    def __init__(self) -> None:
        self.returns_updated = True

    def refuses_data(self, code: object) -> bool:
        """See :class:`Dialect`. Class 54: a value is larger than a row or an index entry can be."""
        return isinstance(code, str) and code.startswith("54")

    def session_setup(self, connection: Any, bounds: Bounds) -> tuple[str, list[Any]]:
        """See :class:`Dialect`."""
        statement = in_ms(bounds.statement)
        server = connection.connection.info.backend_pid
        return self.SETUP, [statement, in_ms(bounds.lock), statement, server]


class MySQL(Dialect):
    """MySQL and MariaDB."""

    recurses_by_index = False
    locks_uncommitted = True
    insert_ignore = ("INSERT IGNORE", "")
    on_conflict_update = "ON DUPLICATE KEY UPDATE"
    skip_locked = "FOR UPDATE SKIP LOCKED"
    moment_as_text = "CAST({} AS CHAR)"
    now = "SELECT UTC_TIMESTAMP(6)"
    most_connections = "SELECT @@max_connections"
    #: MariaDB and MySQL have different names for theirs.
    isolation_levels = "SHOW VARIABLES WHERE Variable_name IN ('tx_isolation', 'transaction_isolation')"
    collision_codes = frozenset({1213})  # deadlock
    lock_codes = frozenset({1205, 3572})  # lock wait timeout, NOWAIT
    timeout_codes = frozenset({1969, 3024})  # MariaDB's statement timeout, MySQL's query timeout
    #: A packet too large, a value out of range, wrong for its column or its character set, or too long.
    DATA_CODES = frozenset({1153, 1264, 1292, 1301, 1366, 1406})

    def __init__(self) -> None:
        self.returns_updated = False

    def refuses_data(self, code: object) -> bool:
        """See :class:`Dialect`."""
        return code in self.DATA_CODES

    def session_setup(self, connection: Any, bounds: Bounds) -> tuple[str, list[Any]]:
        """See :class:`Dialect`. Lock waits count whole seconds; MySQL's bound covers SELECT alone."""
        lock_wait = ", innodb_lock_wait_timeout = 1" if bounds.lock else ""
        statement = bounds.statement or 0.0
        if not connection.mysql_is_mariadb:
            return f"SET SESSION max_execution_time = %s{lock_wait}", [round(statement * 1000)]
        sql = f"SET SESSION max_statement_time = %s, idle_transaction_timeout = %s{lock_wait}"
        return sql, [statement, max(1, round(statement)) if statement else 0]

    def shorten_session(self, run: Callable[[str], object]) -> str:
        """See :class:`Dialect`. A second is the least that both servers take."""
        before = run("SELECT @@SESSION.innodb_lock_wait_timeout")
        run("SET SESSION innodb_lock_wait_timeout = 1")
        return f"SET SESSION innodb_lock_wait_timeout = {before}"


def in_ms(seconds: float | None) -> str:
    """Return seconds as PostgreSQL's settings take them; 0 is no bound.

    >>> in_ms(2.5), in_ms(None)
    ('2500ms', '0')
    """
    return f"{max(1, round(seconds * 1000))}ms" if seconds else "0"


DIALECTS: dict[str, type[Dialect]] = {"postgresql": PostgreSQL, "mysql": MySQL}


@cache
def dialect_of(engine: str) -> Dialect:
    """Return the dialect of the databases of an engine of Django's."""
    return DIALECTS.get(load_backend(engine).DatabaseWrapper.vendor, Dialect)()
