"""Statements that run again and again, planned once per connection instead of every time.

Django sends PostgreSQL one text with everything in it, which is parsed and planned anew each time: for the
statements of a queue that costs more than running them. A prepared statement belongs to its session, so this
is for connections that talk to the server itself. Behind a pooler that lends sessions by the transaction the
next transaction would not find it; there, and wherever somebody watches Django's cursors, they are used.

A plan that is kept was made for the rows there were: a scan of a table that was empty is a bad plan an hour
later. So only what needs no plan is prepared in sessions of the project; the engine's own never scan tables
(``store.sessions``).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

#: A connection that lives for one short request is not worth the question of :func:`is_direct`.
WORTHWHILE = 3

#: By the driver's connection: how often it was used here, then whether statements can be prepared on it.
_uses: WeakKeyDictionary[Any, int | bool] = WeakKeyDictionary()
#: The driver's connections of sessions that are the engine's own.
_own: WeakSet[Any] = WeakSet()


def note_own_session(connection: Any) -> None:
    """Note a session that is the engine's own, direct, and set to scan no tables."""
    _own.add(connection)
    _uses[connection] = True


def run_prepared(database: Any, sql: str, params: Sequence[Any], needs_plan: bool = True) -> Any:
    """Run a statement, prepared; return the driver's cursor, or None where Django's is to be used."""
    if not may_prepare(database) or (needs_plan and database.connection not in _own):
        return None
    database.validate_no_broken_transaction()
    with database.wrap_database_errors:
        return executed(database.connection, sql, params, reads_moments=needs_plan)


def may_prepare(database: Any) -> bool:
    """Tell whether a statement may be prepared on this connection."""
    if database.vendor != "postgresql" or database.execute_wrappers or database.queries_logged:
        return False
    if database.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS") or database.Database.__name__ != "psycopg":
        return False
    database.ensure_connection()
    known = _uses.get(database.connection, 0)
    if not isinstance(known, bool):
        known = known + 1
        if known > WORTHWHILE:
            known = is_direct(database)
        _uses[database.connection] = known
    return known is True


def is_direct(database: Any) -> bool:
    """Tell whether the session is the server's own: a pooler names a process that is not the one we reach."""
    database.validate_no_broken_transaction()
    with database.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return bool(cursor.fetchone()[0] == database.connection.info.backend_pid)


def executed(connection: Any, sql: str, params: Sequence[Any], reads_moments: bool) -> Any:
    """Run a statement, prepared, which Django has switched off for everything that its own cursors run."""
    threshold = connection.prepare_threshold
    connection.prepare_threshold = 0
    try:
        return cursor_of(connection, reads_moments).execute(sql, params, prepare=True)
    finally:
        connection.prepare_threshold = threshold


def cursor_of(connection: Any, reads_moments: bool) -> Any:
    """Return a cursor whose parameters go beside the statement; moments are read by the driver's own code."""
    cursor_class, loader = of_driver()
    cursor: Any = cursor_class(connection)
    if reads_moments:
        cursor.adapters.register_loader("timestamptz", loader)
    return cursor


@functools.cache
def of_driver() -> tuple[Any, Any]:
    """Return the driver's class of cursors, and what reads moments; the driver may be missing."""
    from psycopg import Cursor
    from psycopg.types.datetime import TimestamptzLoader

    return Cursor, TimestamptzLoader
