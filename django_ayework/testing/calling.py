"""Calling a handler in the test's own thread and transaction."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from asgiref.sync import async_to_sync
from django.db import DatabaseError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ayework.worker.attempt import Opened, awaited

Savepoint = tuple[BaseDatabaseWrapper, Any]


def call_here(attempt: Opened) -> Any:
    """Call a handler, sync or async.

    A database error would spoil the test's transaction, so it is rolled back to where the handler began. Any
    other error keeps what the handler wrote, as outside of tests.
    """
    points = [
        (each, each.savepoint()) for each in connections.all(initialized_only=True) if each.in_atomic_block
    ]
    try:
        returned = called(attempt)
    except DatabaseError:
        undo(points)
        raise
    except Exception:
        with suppress(DatabaseError):
            keep(points)
        raise
    keep(points)
    return returned


def called(attempt: Opened) -> Any:
    """Call the handler, awaiting an async one."""
    if attempt.work_type.is_async:
        return async_to_sync(awaited)(attempt)
    return attempt.call()


def keep(points: list[Savepoint]) -> None:
    """Keep what was written; undo it when a database error, though caught, has spoilt the transaction."""
    try:
        for connection, point in points:
            connection.savepoint_commit(point)
    except DatabaseError:
        undo(points)
        raise


def undo(points: list[Savepoint]) -> None:
    """Roll back to where the handler began."""
    for connection, point in points:
        connection.needs_rollback = False
        connection.savepoint_rollback(point)
