"""Calling a handler in the test's own thread and transaction."""

from __future__ import annotations

from typing import Any

from asgiref.sync import async_to_sync
from django.db import DatabaseError, transaction

from django_ayework.store.database import alias, connection
from django_ayework.worker.attempt import Opened, awaited


def call_here(attempt: Opened) -> Any:
    """Call a handler, sync or async.

    A database error would spoil the test's transaction, so it is rolled back to where the handler began. Any
    other error keeps what the handler wrote, as outside of tests.
    """
    if not connection().in_atomic_block:
        return called(attempt)
    point = transaction.savepoint(using=alias())
    try:
        returned = called(attempt)
    except DatabaseError:
        transaction.savepoint_rollback(point, using=alias())
        transaction.set_rollback(False, using=alias())
        raise
    except Exception:
        transaction.savepoint_commit(point, using=alias())
        raise
    transaction.savepoint_commit(point, using=alias())
    return returned


def called(attempt: Opened) -> Any:
    """Call the handler, awaiting an async one."""
    if attempt.work_type.is_async:
        return async_to_sync(awaited)(attempt)
    return attempt.call()
