"""The differences between databases: one object for each kind of database, chosen once.

Whole statements stand where they are used. A choice between two of them asks what the dialect can do, never
for the name of a database. Short pieces of SQL, error codes and session settings stand here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, ClassVar, NamedTuple

from django.db.utils import load_backend

from django_ayework.rules.codec.text import write

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

    #: Django's name for it.
    vendor: ClassVar[str] = "sqlite"
    #: Quotes the name of a table or column.
    quote: ClassVar[str] = '"'
    #: One statement can lock, update and return the rows that arrays name.
    has_arrays: ClassVar[bool] = False
    #: An UPDATE of rows ``w`` joined with values ``v``, what its WHERE compares, and whether the parameters
    #: of the values come before those of SET. UPDATE … FROM came to SQLite with 3.33.
    update_joined: ClassVar[str] = "UPDATE {table} AS w SET {sets} FROM {source} WHERE {met} AND {condition}"
    met: ClassVar[str] = "w.{column} = {value}"
    source_first: ClassVar[bool] = False
    #: Joins rows ``w`` with the ids ``v.v0`` that a column of theirs has: its index is read once per id.
    join_by_id: ClassVar[str] = "CROSS JOIN {table} AS w ON w.{column} = v.v0"
    #: ``UPDATE … RETURNING`` needs no locks; SQLite brought it with 3.35.
    returns_updated: ClassVar[bool] = sqlite3.sqlite_version_info >= (3, 35)
    #: A recursive query uses an index for a bound that the row before it gives.
    recurses_by_index: ClassVar[bool] = True
    #: A comparison of rows, such as ``(a, b) > (1, 2)``, uses an index.
    compares_rows: ClassVar[bool] = True
    #: An INSERT that makes no row where its key exists: the verb, and what ends the statement.
    insert_ignore: ClassVar[tuple[str, str]] = ("INSERT", "ON CONFLICT DO NOTHING")
    #: Ends an INSERT that adds to the rows whose key exists, and the new value of a column of theirs.
    or_update: ClassVar[str] = "ON CONFLICT ({key}) DO UPDATE SET {sets}"
    sum_of: ClassVar[str] = "{column} = {table}.{column} + excluded.{column}"
    #: Ends an INSERT that makes no row of an id that is taken. Where it is empty, that is an error.
    unless_taken: ClassVar[str] = " ON CONFLICT (id) DO NOTHING"
    #: Makes the search for the last turn of a label use its index: SQLite would scan the lane.
    by_turn: ClassVar[str] = "INDEXED BY ayework_turn"
    #: A sort key as the number of a turn, NULL unless it has 16 digits; and a turn as a sort key.
    turn_number: ClassVar[str] = "NULLIF(CAST(({key}) AS INTEGER), 0)"
    turn_text: ClassVar[str] = "PRINTF('%%016d', {turn})"
    #: The values of an INSERT that reads the table it is for.
    values_that_read: ClassVar[str] = "VALUES ({values})"
    #: The order of blocked works that have one deadline, so that it is read from their index.
    order_of_blocked: ClassVar[tuple[str, ...]] = ("deadline", "id")
    #: A locking SELECT meets rows that other transactions have inserted and not committed.
    locks_uncommitted: ClassVar[bool] = False
    #: Reads the server's clock. None: the database runs on this host.
    now: ClassVar[str | None] = None
    #: Reads how many connections the server takes in all. None: there is no such bound.
    most_connections: ClassVar[str | None] = None
    #: Reads a name, then the isolation levels of transactions, and of statements outside of them if those
    #: have one of their own. None: there is only one.
    isolation_levels: ClassVar[str | None] = None
    #: Reads the character set of a connection. None: it has every character.
    charset: ClassVar[str | None] = None
    #: Shortens the lock waits of one transaction. None: only those of a session can be shortened.
    shorten_here: ClassVar[str | None] = None
    #: Settings by which statements read indexes in order, and stop early. Empty: they do so anyway.
    by_index: ClassVar[dict[str, str]] = {}
    #: Those with which statements may sort the few rows that an index leads to.
    by_index_then_sort: ClassVar[dict[str, str]] = {}
    #: Errors of a transaction that was ended for the sake of another one.
    collision_codes: ClassVar[frozenset[object]] = frozenset()
    #: Errors of a lock that another transaction holds.
    lock_codes: ClassVar[frozenset[object]] = frozenset()
    #: Errors of a statement that took longer than its bound.
    timeout_codes: ClassVar[frozenset[object]] = frozenset()

    def quoted(self, name: str) -> str:
        """Return the name of a table or column as the database writes it."""
        return f"{self.quote}{name}{self.quote}"

    def columns(self, model: Any, names: Iterable[str]) -> dict[str, str]:
        """Return the columns of these fields of a model, quoted, by the name of the field."""
        return {name: f"{self.quote}{model._meta.get_field(name).column}{self.quote}" for name in names}

    def mark(self, field: Any) -> str:
        """Return the placeholder of a value of this field in a SELECT."""
        return "%s"

    def source(self, fields: Sequence[Any]) -> str:
        """Return a table ``v`` with the columns ``v0``, ``v1`` and so on, one for each field.

        One text has every row, as a list in JSON.
        """
        parts = ", ".join(f"json_extract(value, '$[{number}]') AS v{number}" for number in range(len(fields)))
        return f"(SELECT {parts} FROM json_each(%s)) AS v"

    def source_params(self, columns: Sequence[Sequence[Any]]) -> list[Any]:
        """Return the parameters of :meth:`source`; the values are as the database takes them.

        Raises ValueError for a NUL character, as PostgreSQL's driver does: SQLite would cut the text there.
        """
        text = rows_in_json(columns)
        if r"\u0000" in text and any("\x00" in str(value) for column in columns for value in column):
            raise ValueError("expected texts without NUL characters to store, got one that has some.")
        return [text]

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

    vendor = "postgresql"
    has_arrays = True
    #: The condition is one on rows with their values, by which alone no row is looked for.
    update_joined = (
        "UPDATE {table} AS w SET {sets} FROM {source} WHERE {met} AND (v.v0 IS NULL OR ({condition}))"
    )
    #: PostgreSQL can neither hash nor merge by such a comparison, so it starts with the values. Otherwise it
    #: may start with an index of running works, and lock rows in the order of that.
    met = "w.{column} = ANY(ARRAY[{value}])"
    #: OFFSET 0 keeps the inner query whole: PostgreSQL has no statistics of edges that were inserted a moment
    #: ago, takes their ids for common ones, and would read every edge.
    join_by_id = "CROSS JOIN LATERAL (SELECT * FROM {table} WHERE {column} = v.v0 OFFSET 0) AS w"
    by_turn = ""
    turn_number = "CAST(SUBSTRING(({key}) FROM '^[0-9]{{16}}$') AS bigint)"
    turn_text = "LPAD(CAST({turn} AS text), 16, '0')"
    now = "SELECT clock_timestamp()"
    most_connections = "SELECT current_setting('max_connections')"
    #: The driver may choose a level for transactions, apart from that of statements outside of them.
    isolation_levels = (
        "SELECT '', current_setting('transaction_isolation'), "
        "current_setting('default_transaction_isolation')"
    )
    shorten_here = f"SET LOCAL lock_timeout = {SHORT_WAIT}"
    #: PostgreSQL would collect all of many entries first, sort the table where it misjudges how few rows
    #: match, compile statements, or start processes. Each takes longer than these statements do.
    by_index_then_sort: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("jit", "enable_seqscan", "enable_bitmapscan"), "off"),
        "max_parallel_workers_per_gather": "0",
    }
    by_index: ClassVar[dict[str, str]] = {**by_index_then_sort, "enable_sort": "off"}
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
    #: ends by itself, and gives its locks back. A session that waits for works is idle on purpose.
    SETUP = """
    SELECT set_config('statement_timeout', %s, false),
           set_config('lock_timeout', %s, false),
           set_config('idle_in_transaction_session_timeout', %s, false),
           CASE WHEN current_setting('idle_session_timeout', true) <> '0'
                THEN set_config('idle_session_timeout', '0', false) END,
           CASE WHEN current_setting('jit', true) = 'on' THEN set_config('jit', 'off', false) END,
           set_config('enable_seqscan', 'off', false),
           set_config('enable_bitmapscan', 'off', false),
           set_config('plan_cache_mode', 'force_generic_plan', false)
    WHERE pg_backend_pid() = %s
    """

    #: The element types of arrays, by field; arrays of all other fields have texts.
    ARRAYS: ClassVar[dict[str, str]] = {
        "IntegerField": "bigint",
        "BigAutoField": "bigint",
        "DateTimeField": "timestamptz",
        "BooleanField": "boolean",
    }

    def mark(self, field: Any) -> str:
        """See :class:`Dialect`. A parameter of a SELECT has the type that it is cast to."""
        return f"%s::{self.ARRAYS.get(field.get_internal_type(), 'text')}"

    def source(self, fields: Sequence[Any]) -> str:
        """See :class:`Dialect`. Arrays are zipped."""
        names = ", ".join(f"v{number}" for number in range(len(fields)))
        return f"unnest({', '.join(self.mark(field) + '[]' for field in fields)}) AS v({names})"

    def source_params(self, columns: Sequence[Sequence[Any]]) -> list[Any]:
        """See :class:`Dialect`."""
        return [array_text(column) for column in columns]

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

    vendor = "mysql"
    quote = "`"
    #: The values come first, in their order, and each row is looked up. Read the other way round, or chosen
    #: by CASE, each row would be compared with every key. Without its index a small table is scanned, and the
    #: statement waits for rows that it is not about.
    update_joined = (
        "UPDATE {source} STRAIGHT_JOIN {table} AS w FORCE INDEX (PRIMARY) "
        "SET {sets} WHERE {met} AND {condition}"
    )
    source_first = True
    #: Each id of an IN is looked up twice, once for the plan; those of a STRAIGHT_JOIN once.
    join_by_id = "STRAIGHT_JOIN {table} AS w ON w.{column} = v.v0"
    unless_taken = ""
    by_turn = ""
    turn_number = "CAST(NULLIF(REGEXP_SUBSTR(({key}), '^[0-9]{{16}}$'), '') AS UNSIGNED)"
    turn_text = "LPAD({turn}, 16, '0')"
    values_that_read = "SELECT {values} FROM DUAL"
    order_of_blocked = ("id",)
    returns_updated = False
    recurses_by_index = False
    compares_rows = False
    locks_uncommitted = True
    insert_ignore = ("INSERT IGNORE", "")
    or_update = "ON DUPLICATE KEY UPDATE {sets}"
    sum_of = "{column} = {column} + VALUES({column})"
    now = "SELECT UTC_TIMESTAMP(6)"
    most_connections = "SELECT @@max_connections"
    charset = "SELECT @@character_set_client"
    #: MariaDB and MySQL have different names for theirs.
    isolation_levels = "SHOW VARIABLES WHERE Variable_name IN ('tx_isolation', 'transaction_isolation')"
    collision_codes = frozenset({1213})  # deadlock
    lock_codes = frozenset({1205, 3572})  # lock wait timeout, NOWAIT
    timeout_codes = frozenset({1969, 3024})  # MariaDB's statement timeout, MySQL's query timeout
    #: A packet too large, a value out of range, wrong for its column or its character set, or too long. A
    #: text that the character set of the connection cannot carry makes JSON that cannot be read: MariaDB's
    #: four errors, and MySQL's two.
    DATA_CODES = frozenset({1153, 1264, 1292, 1301, 1366, 1406, 4035, 4036, 4037, 4038, 3140, 3141})

    #: An UPDATE that is joined with values has no key for these, which "safe updates" refuse. A limit of rows
    #: would cut what is read, and no error says so.
    #: A session that waits for works is idle on purpose, for less than the servers' default.
    UNLIMITED = "sql_safe_updates = 0, sql_select_limit = 18446744073709551615, wait_timeout = 28800"

    #: The column types of values in JSON. Texts are wide, as a longer value would become NULL unnoticed.
    JSON_TYPES: ClassVar[dict[str, str]] = {
        "IntegerField": "BIGINT",
        "BigAutoField": "BIGINT",
        "DateTimeField": "DATETIME(6)",
        "BooleanField": "TINYINT",
    }
    TEXT = "LONGTEXT CHARACTER SET utf8mb4"

    def source(self, fields: Sequence[Any]) -> str:
        """See :class:`Dialect`. It is read twice as quickly as VALUES."""
        types = [self.JSON_TYPES.get(field.get_internal_type(), self.TEXT) for field in fields]
        parts = ", ".join(f"v{number} {type} PATH '$[{number}]'" for number, type in enumerate(types))
        return f"JSON_TABLE(%s, '$[*]' COLUMNS({parts})) AS v"

    def source_params(self, columns: Sequence[Sequence[Any]]) -> list[Any]:
        """See :class:`Dialect`."""
        return [rows_in_json(columns)]

    def refuses_data(self, code: object) -> bool:
        """See :class:`Dialect`."""
        return code in self.DATA_CODES

    def session_setup(self, connection: Any, bounds: Bounds) -> tuple[str, list[Any]]:
        """See :class:`Dialect`. Lock waits count whole seconds; MySQL's bound covers SELECT alone.

        Rows and tables have a bound each. By default MySQL waits a year for the lock of a table.
        """
        lock_wait = ", innodb_lock_wait_timeout = 1, lock_wait_timeout = 1" if bounds.lock else ""
        statement = bounds.statement or 0.0
        if not connection.mysql_is_mariadb:
            sql = f"SET SESSION {self.UNLIMITED}, max_execution_time = %s{lock_wait}"
            return sql, [round(statement * 1000)]
        sql = (
            f"SET SESSION {self.UNLIMITED}, max_statement_time = %s, idle_transaction_timeout = %s{lock_wait}"
        )
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


def rows_in_json(columns: Sequence[Sequence[Any]]) -> str:
    """Return columns of values as one text in JSON that has a list for each row."""
    return write(list(zip(*columns, strict=True)))


def array_text(values: Sequence[Any]) -> str:
    r"""Return the text of an array of texts, numbers, booleans, moments or None; cast it to its type.

    PostgreSQL's documentation, "Array Input and Output Syntax": quoted elements escape ``"`` and ``\``. The
    driver puts arrays together element by element, with a check of every type. That costs more than
    everything else a statement over many rows does here.

    >>> print(array_text(["a", 'say "b"', None, 3]))
    {"a","say \"b\"",NULL,"3"}
    """
    with suppress(TypeError):  # not texts alone
        quick = '","'.join(values)
        if values and "\\" not in quick and quick.count('"') == 2 * (len(values) - 1):
            return '{"' + quick + '"}'
    return "{" + ",".join(map(element, values)) + "}"


def element(value: Any) -> str:
    """Return one element, quoted."""
    if value is None:
        return "NULL"
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


DIALECTS: dict[str, type[Dialect]] = {"postgresql": PostgreSQL, "mysql": MySQL}


@cache
def dialect_of(engine: str) -> Dialect:
    """Return the dialect of the databases of an engine of Django's."""
    return DIALECTS.get(load_backend(engine).DatabaseWrapper.vendor, Dialect)()
