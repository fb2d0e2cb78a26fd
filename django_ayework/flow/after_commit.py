"""After the caller's commit: deferred inserts, and the first attempts of works that skip the queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from django.db import connections, transaction

from django_ayework.define.options import combined
from django_ayework.define.registry import registry
from django_ayework.define.requests import WorkRequest
from django_ayework.errors import InvalidOption, NotEnqueued
from django_ayework.flow.events import guarded, report
from django_ayework.store.database import in_transaction, is_manual, on_commit
from django_ayework.store.rows import WorkRow

#: Works that a message names.
NAMED = 10


def insert_after_commit(
    rows: Sequence[WorkRow], insert: Callable[[], object], passed: frozenset[str] = frozenset()
) -> None:
    """Insert these works once every transaction that is open in this thread has committed.

    The caller's rows may be in any database. A rollback of any of the transactions drops the works. Without a
    transaction they are inserted at once, and errors are raised. ``passed`` are databases that have
    committed.
    """
    alias = open_transaction(passed)
    if alias is None:
        insert()
    else:
        transaction.on_commit(partial(go_on, rows, insert, passed | {alias}), using=alias)


def go_on(rows: Sequence[WorkRow], insert: Callable[[], object], passed: frozenset[str]) -> None:
    """Go on after a commit; report an error, as Django would skip the callbacks that follow."""
    try:
        insert_after_commit(rows, insert, passed)
    except Exception as error:
        report_not_enqueued(rows, error)


def open_transaction(passed: frozenset[str]) -> str | None:
    """Return a database on which this thread is in a transaction whose commit Django will see."""
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


class Providers:
    """What makes first attempts in this process, connected at start-up: nothing here imports the worker.

    The row of a work that skips the queue is pending from the start, as any other. A worker may claim it
    first, and claims it whenever this process cannot start it. ``held_back`` leaves these works to workers,
    as tests do.
    """

    intake: Callable[[Sequence[WorkRow]], object] | None = None
    held_back = False


providers = Providers()


def require_immediate_start(request: WorkRequest[Any, Any], given: Mapping[str, Any]) -> None:
    """Raise InvalidOption for a work with ``skip_queue=True`` that cannot start at once in this process."""
    work_type = registry.find(request.type)
    if work_type is None or registry.batch(request.type) is not None:
        raise InvalidOption(
            f"expected skip_queue=True for works that are run one by one, got {request.type!r}, whose works "
            "wait for others; leave skip_queue out."
        )
    if work_type.settings.doer is not None:
        raise InvalidOption(
            f"expected skip_queue=True for works without a doer= of their own, got {request.type!r}: what "
            "its doer limits must reach a worker; leave one of both out."
        )
    options = combined(given, request.options)
    for name in ("run_at", "delay", "blockers"):
        if options.get(name):
            raise InvalidOption(
                f"expected no {name}= for a work that skips the queue, as that starts at once, got: "
                f"{name}={options[name]!r} for {request.type!r}; leave it out, or enqueue the work with "
                "skip_queue=False."
            )


def start_after_commit(works: Sequence[WorkRow]) -> None:
    """Make the first attempts of these works in this process once they are committed.

    A rollback, of a savepoint too, drops them.
    """
    if works:
        on_commit(partial(hand_over, works))


def hand_over(works: Sequence[WorkRow]) -> None:
    """Start works that are committed; in a test, where ``drain`` calls this, they are not."""
    if providers.intake is not None and not providers.held_back and not in_transaction():
        guarded(providers.intake, works)
