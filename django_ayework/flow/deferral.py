"""Waiting for the caller's commit, whichever database the caller's rows are in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from django.db import connections, transaction

from django_ayework.errors import NotEnqueued
from django_ayework.flow.events import report
from django_ayework.store.database import is_manual
from django_ayework.store.rows import WorkRow

#: Works that a message names.
NAMED = 10


def insert_after_commit(rows: Sequence[WorkRow], insert: Callable[[], object]) -> None:
    """Insert these works once every transaction that is open in this thread has committed.

    A rollback of any drops it. Without a transaction they are inserted at once, and errors are raised.
    """
    alias = open_transaction(frozenset())
    if alias is None:
        insert()
    else:
        wait_for(alias, frozenset(), rows, insert)


def wait_for(
    alias: str, passed: frozenset[str], rows: Sequence[WorkRow], insert: Callable[[], object]
) -> None:
    """Go on after the commit on this database; ``passed`` are those whose commit has been waited for."""
    transaction.on_commit(partial(go_on, passed | {alias}, rows, insert), using=alias)


def go_on(passed: frozenset[str], rows: Sequence[WorkRow], insert: Callable[[], object]) -> None:
    """Wait for the next transaction, or insert.

    An error is reported: to raise it would keep Django from the callbacks behind, and undoes nothing.
    """
    try:
        alias = open_transaction(passed)
        if alias is None:
            insert()
        else:
            wait_for(alias, passed, rows, insert)
    except Exception as error:
        report_not_enqueued(rows, error)


def open_transaction(passed: frozenset[str]) -> str | None:
    """Return a database on which this thread is in a transaction of whose commit Django tells."""
    for connection in connections.all(initialized_only=True):
        if connection.in_atomic_block and not is_manual(connection) and connection.alias not in passed:
            return connection.alias
    return None


def report_not_enqueued(rows: Sequence[WorkRow], error: Exception) -> None:
    """Report works that were not inserted, so that they can be enqueued again by hand."""
    names = [f"{row.id} ({row.type})" for row in rows[:NAMED]]
    if len(rows) > NAMED:
        names.append(f"{len(rows) - NAMED} more")
    message = (
        f"not enqueued after the commit, enqueue again: {', '.join(names)}: {type(error).__name__}: {error}"
    )
    failure = NotEnqueued(message, works=[(row.id, row.type) for row in rows])
    failure.__cause__ = error
    report(failure, "commit", "works with on_commit=True were lost")
