"""What a session of the engine's own with the database is set to: no statement takes for ever.

The engine's own threads claim, settle and keep leases, on connections of their own. Handlers have others,
which are left as the project has set them.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from django_ayework.conf import get_settings
from django_ayework.store.database import alias
from django_ayework.store.prepared import note_own_session

#: The server tells a pooler's client a process that is not the one it talks to: a pooler lends each
#: transaction another session, and what is set in one would be left for strangers. JIT costs over a second
#: on the first statement over many rows, and gains nothing on statements over few. Every statement of ours
#: has an index; a plan that is kept from when a table was empty would scan it. Rows are looked up one by one,
#: where a bitmap costs half as much again as the row; without statistics the planner expects more of each.
#: Plans of prepared statements are kept: the server would make them anew each time where it expects to gain
#: by that, which takes longer than to run them.
POSTGRESQL = """
SELECT set_config('statement_timeout', %s, false),
       CASE WHEN current_setting('jit', true) = 'on' THEN set_config('jit', 'off', false) END,
       set_config('enable_seqscan', 'off', false),
       set_config('enable_bitmapscan', 'off', false),
       set_config('plan_cache_mode', 'force_generic_plan', false)
WHERE pg_backend_pid() = %s
"""
MARIADB = "SET SESSION max_statement_time = %s"
MYSQL = "SET SESSION max_execution_time = %s"  # covers SELECT alone

_thread = threading.local()


@contextmanager
def bounded_statements() -> Generator[None]:
    """Bound the statements of connections that this thread opens inside, by ``STATEMENT_TIMEOUT``."""
    before = set_bounded(True)
    try:
        yield
    finally:
        set_bounded(before)


def set_bounded(bounded: bool) -> bool:
    """Say whether connections that this thread opens from now on are the engine's own; return what was so."""
    before: bool = getattr(_thread, "bounded", False)
    _thread.bounded = bounded
    return before


def bound_session(sender: object, connection: BaseDatabaseWrapper, **kwargs: object) -> None:
    """Set up a session that was just opened, if it is the engine's: one statement per connection."""
    if not getattr(_thread, "bounded", False) or connection.alias != alias() or is_lent(connection):
        return
    timeout = get_settings().statement_timeout
    setting = None if timeout is None else statement_for(connection, timeout)
    if setting is not None:
        with connection.cursor() as cursor:
            cursor.execute(*setting)
            if connection.vendor == "postgresql" and cursor.fetchone() is not None:
                note_own_session(connection)


def is_lent(connection: BaseDatabaseWrapper) -> bool:
    """Tell whether the connection goes back to a pool of this process, where handlers would get it."""
    return bool(connection.settings_dict["OPTIONS"].get("pool"))


def statement_for(connection: Any, timeout: float) -> tuple[str, list[Any]] | None:
    """Return the statement that bounds all later ones, where the database has such a thing."""
    if connection.vendor == "postgresql":
        server = connection.connection.info.backend_pid
        return POSTGRESQL, [f"{max(1, round(timeout * 1000))}ms", server]
    if connection.vendor == "mysql" and connection.mysql_is_mariadb:
        return MARIADB, [timeout]
    if connection.vendor == "mysql":
        return MYSQL, [max(1, round(timeout * 1000))]
    return None


connection_created.connect(bound_session, dispatch_uid="django_ayework.sessions")
