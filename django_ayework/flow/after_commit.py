"""What waits for the caller's commit: deferred inserts, and works that skip the queue."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from django.db import connections, transaction

from django_ayework.define.registry import registry
from django_ayework.define.requests import WorkRequest
from django_ayework.errors import InvalidOption, NotEnqueued
from django_ayework.flow.events import guarded, report
from django_ayework.flow.new_works import NewWork
from django_ayework.store.database import in_transaction, is_manual, on_commit
from django_ayework.store.rows import WorkRow

# --- deferral ---
# Waiting for the caller's commit, whichever database the caller's rows are in.

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


# --- direct ---
# Skipping the queue: the process that enqueued a work makes its first attempt, right after the commit.
#
# The row is pending from the start, as any other: a worker may have it first, and has it whenever this
# process
# cannot. Who makes attempts is connected at start-up, so that nothing here knows of workers.


class Providers:
    """Who makes first attempts in this process; ``held_back`` leaves them to workers, as tests do."""

    intake: Callable[[Sequence[WorkRow]], object] | None = None
    held_back = False


providers = Providers()


def skips_queue(request: WorkRequest[Any, Any], given: Mapping[str, Any]) -> bool:
    """Tell whether the process that enqueues a work makes its first attempt.

    Raises InvalidOption for one that cannot start at once.
    """
    work_type = registry.find(request.type)
    constants = {"skip_queue": work_type is not None and work_type.settings.skip_queue}
    levels: tuple[Mapping[str, Any], ...] = (given, request.options, constants)
    if not next(level["skip_queue"] for level in levels if "skip_queue" in level):
        return False
    require_one_work(request)
    require_start_at_once(request, levels)
    return True


def require_one_work(request: WorkRequest[Any, Any]) -> None:
    """Raise for what has no handler to call for it alone: gates, and works that are run together."""
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


def require_start_at_once(request: WorkRequest[Any, Any], levels: Iterable[Mapping[str, Any]]) -> None:
    """Raise for an option that lets the work start later; the first level that names a start decides it."""
    options: dict[str, Any] = {}
    for level in levels:
        if options.keys().isdisjoint(("delay", "run_at")):
            options |= {name: level[name] for name in ("delay", "run_at") if name in level}
        options.setdefault("blockers", level.get("blockers"))
    for name in ("run_at", "delay", "blockers"):
        if options.get(name):
            raise InvalidOption(
                f"expected no {name}= for a work that skips the queue, as that starts at once, got: "
                f"{name}={options[name]!r} for {request.type!r}; leave it out, or enqueue the work with "
                "skip_queue=False."
            )


def start_after_commit(new_works: Iterable[NewWork], taken: Collection[str] = ()) -> None:
    """Hand works that skip the queue over to who makes attempts, once they are committed.

    A rollback, of a savepoint too, drops it. ``taken`` are ids that existed, and are not ours.
    """
    new = [new_work.row for new_work in new_works if new_work.skips_queue and new_work.row.id not in taken]
    if new:
        on_commit(partial(hand_over, new))


def hand_over(works: Sequence[WorkRow]) -> None:
    """Start works that are committed; in a test, where ``drain`` calls this, they are not."""
    if providers.intake is not None and not providers.held_back and not in_transaction():
        guarded(providers.intake, works)
