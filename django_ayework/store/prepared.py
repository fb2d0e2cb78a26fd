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

from django_ayework.heartbeat import beat, beat_before

#: A connection that lives for one short request is not worth a statement that is prepared.
WORTHWHILE = 3
#: What an INSERT returns by which a session is recognised: no statement of its own is sent for that.
BACKEND = " RETURNING pg_backend_pid()"
#: No statement runs so often. Django's None says the same, but with that the driver does not notice either
#: that the project takes away what is prepared, by ``DISCARD ALL`` or ``DEALLOCATE ALL``.
NEVER = 2**62
#: Where a connection of Django's keeps what is known of its session: to look there costs next to nothing.
ATTRIBUTE = "_ayework_session"


class Session:
    """What is known of the session that Django's connection has at the moment.

    Its cursors are kept: to make one costs more than most statements here do.
    """

    __slots__ = ("can_prepare", "connection", "cursors", "is_own", "uses")

    def __init__(self, database: Any, is_own: bool = False) -> None:
        may_ask = takes_prepared(database)
        self.connection = database.connection  # the driver's
        self.is_own = is_own and may_ask  # the engine's own, direct, and set to scan no tables
        #: None until an INSERT has returned the server's process.
        self.can_prepare: bool | None = self.is_own or (None if may_ask else False)
        self.uses = 0
        self.cursors: dict[bool, Any] = {}


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
    """Run a statement, prepared; return the driver's cursor, or None where Django's is to be used.

    The next statement uses the same cursor: read its rows before.
    """
    session = session_of(database)
    if is_watched(database) or not may_prepare(session, needs_plan):
        return None
    if database.needs_rollback:
        database.validate_no_broken_transaction()
    try:
        return executed(session, sql, params, reads_moments=needs_plan)
    except Exception:
        with database.wrap_database_errors:  # entered only now: it does something for errors alone
            raise


def keeps_plans(database: Any) -> bool:
    """Tell whether this is a session of the engine's own, which plans a statement once and for all."""
    return session_of(database).is_own and not is_watched(database)


def is_watched(database: Any) -> bool:
    """Tell whether somebody watches what Django's cursors run."""
    watched = any(wrapper is not beat_before for wrapper in database.execute_wrappers)
    return bool(watched or database.queries_logged)


def session_of(database: Any) -> Session:
    """Return what is known of the session, which is opened if there is none."""
    session: Session | None = getattr(database, ATTRIBUTE, None)
    if session is not None and session.connection is database.connection:
        return session
    return session_opened(database)


def session_opened(database: Any) -> Session:
    """Open a session if there is none; return what is known of it, which may be noted as it opens."""
    database.ensure_connection()
    session: Session | None = getattr(database, ATTRIBUTE, None)
    if session is None or session.connection is not database.connection:
        session = Session(database)
        setattr(database, ATTRIBUTE, session)
    return session


def may_prepare(session: Session, needs_plan: bool) -> bool:
    """Tell whether a statement may be prepared in this session."""
    return session.can_prepare is True and (session.is_own or not needs_plan)


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


def executed(session: Session, sql: str, params: Sequence[Any], reads_moments: bool) -> Any:
    """Run a statement, prepared, which Django has switched off for everything that its own cursors run."""
    beat()
    connection = session.connection
    cursor = session.cursors.get(reads_moments)
    if cursor is None:
        cursor = session.cursors[reads_moments] = new_cursor(connection, reads_moments)
    threshold = connection.prepare_threshold
    connection.prepare_threshold = 0
    try:
        return cursor.execute(sql, params, prepare=True)
    finally:
        connection.prepare_threshold = NEVER if threshold is None else threshold


def new_cursor(connection: Any, reads_moments: bool) -> Any:
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
