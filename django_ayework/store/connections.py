"""Connections of the project's threads: which are open, and what a handler leaves on them."""

from __future__ import annotations

import asyncio
import inspect
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from django.db import Error, close_old_connections, connections, reset_queries
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from django_ayework.compat import is_broken, keep_open, outlive

T = TypeVar("T")

#: libpq: a statement runs, a transaction is open, a transaction has failed.
IN_TRANSACTION = frozenset({1, 2, 3})


#: Where Django opens connections, behind its check for coroutines.
CONNECT = inspect.unwrap(BaseDatabaseWrapper.connect).__code__


class _Thread(threading.local):
    """This thread; made when it is first asked about."""

    def __init__(self) -> None:
        self.has_connected = bool(connections.all(initialized_only=True))


_this_thread = _Thread()


def failed_to_connect(error: BaseException) -> str | None:
    """Return the alias of the database to which an error kept a thread from connecting; None for others.

    The server refused it or has no room for it, or a pool was empty. Drivers have no common name for that,
    so the error's traceback tells. An error of something else that ends the work there is not the database's.
    """
    if not isinstance(error, Error):
        return None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code is CONNECT:
            alias: str = frame.f_locals["self"].alias
            return alias
    return None


def note_connection(**kwargs: object) -> None:
    """Note that this thread has just connected."""
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
        connections.close_all()


def keep_connections() -> None:
    """Close connections of this thread that are broken or have outlived ``CONN_MAX_AGE``, as more is to come.

    An age of 0 means that a connection ends with what it was opened for: here that is a run of works, so it
    is left for :func:`tidy_connections`, which follows the last of them.
    """
    if not has_connected():
        return
    for connection in connections.all(initialized_only=True):
        if connection.settings_dict.get("CONN_MAX_AGE") == 0:
            keep_open(connection)
        connection.close_if_unusable_or_obsolete()
    reset_queries()


def tidy_connections() -> None:
    """Drop this thread's broken and outlived connections, and the query log that DEBUG keeps."""
    if not has_connected():
        return
    for connection in connections.all(initialized_only=True):
        if connection.settings_dict.get("CONN_MAX_AGE") == 0:
            outlive(connection)
    close_old_connections()
    reset_queries()


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
    if connection.autocommit and has_begun(connection):
        return "a transaction open"
    return ""


def has_begun(connection: Any) -> bool:
    """Tell whether the driver is inside a transaction."""
    if connection.vendor == "postgresql":
        return int(connection.connection.info.transaction_status) in IN_TRANSACTION
    return connection.vendor == "sqlite" and bool(connection.connection.in_transaction)


def defuse(block: Any) -> None:
    """Keep a block of ``transaction.atomic()`` that was left open from ending another transaction.

    The generator that holds it may be closed at any time, in any thread, and Django would then end whatever
    that thread has open. Now it fails, as there is no database of that name.
    """
    block.using = "(closed by django_ayework, as a work had left it open)"
