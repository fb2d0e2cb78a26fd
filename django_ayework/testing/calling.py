"""Calling a handler in the test's own thread and transaction."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from asgiref.sync import async_to_sync
from django.db import DatabaseError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ayework.flow.settle import Settlement
from django_ayework.worker.attempts.attempt import Opened, awaited, carried_out
from django_ayework.worker.batches.running import BatchRun, awaited_run

T = TypeVar("T")
Savepoint = tuple[BaseDatabaseWrapper, Any]


def carry_out_here(attempt: Opened) -> Settlement:
    """Call a handler, sync or async, and conclude."""
    return safely(attempt, lambda: carried_out(attempt, called))


def call_batch_here(run: BatchRun) -> Any:
    """Call the handler of a batch."""
    return safely(run.attempts[0], lambda: call_run(run))


def call_run(run: BatchRun) -> Any:
    """Call the handler of a batch, awaiting an async one."""
    return async_to_sync(awaited_run)(run) if run.work_type.is_async else run.call()


def safely(attempt: Opened, act: Callable[[], T]) -> T:
    """Run a part of an attempt.

    A database error would spoil the test's transaction, so it is rolled back to where the handler began. Any
    other error keeps what the handler wrote, as outside of tests; so does one with which a transaction of
    the attempt's own was rolled back.
    """
    points = [
        (each, each.savepoint()) for each in connections.all(initialized_only=True) if each.in_atomic_block
    ]
    try:
        returned = act()
    except BaseException as error:
        if isinstance(error, DatabaseError) and error is not attempt.stages.undone_by:
            undo(points)
            raise
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
