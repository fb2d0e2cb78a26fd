"""Faults for tests: what happens to handlers when workers die, leases lapse and databases go away.

Works are run at least once. A handler whose effects must happen once has to be idempotent, or ``atomic``.
Each function here is a context manager. In its block, the fault happens in the first attempt that ``drain()``
makes of each work::

    with faults.deliver_twice("shop.pay"):
        drain()
    assert Payment.objects.count() == 1

Without types, the fault happens to all works. The block yields the ids of the works to which it happened,
and raises AssertionError at its end if there were none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from django.db import OperationalError, connections, transaction

from django_ayework.compat import as_of_test_case, take_commit_callbacks
from django_ayework.define.context import AbortReason
from django_ayework.flow.maintenance import reclaim
from django_ayework.flow.settle import Settlement, Success
from django_ayework.rules.formatting import counted
from django_ayework.store import leases
from django_ayework.store.database import alias
from django_ayework.testing import running
from django_ayework.testing.assertions import Named, known_type
from django_ayework.testing.running import (
    WORKER,
    Attempting,
    DrainServices,
    run_and_settle,
    run_here,
    savepoints,
    settle_all,
)
from django_ayework.worker.attempt import Ended, HandlerCall
from django_ayework.worker.in_flight import Delivery

__all__ = ["deliver_twice", "die_after_commit", "lose_database", "lose_lease"]

#: The beginnings of statements by which a transaction ends. They pass when the database is lost.
ENDS = ("SAVEPOINT", "ROLLBACK", "RELEASE")


@contextmanager
def deliver_twice(*types: Named) -> Iterator[list[str]]:
    """Let the worker die after the handler has returned, before its outcome is committed.

    What the handler wrote is kept, unless it was written in the transaction of the outcome (``atomic``, or
    ``ctx.complete()``). The work is reclaimed and delivered again, as its next attempt. A work without
    further attempts is dead. An attempt that fails is settled as usual; the fault happens in the next one.

    ``ctx.acomplete()`` raises Aborted, as the worker dies at its end.
    """

    def attempt(due: list[Delivery], services: DrainServices) -> list[Ended]:
        settled, lost = die_before_commit(due, services)
        for delivery, _ in settled:
            met.remove(delivery.row.id)
        return settled + lost

    with fault("deliver_twice", types, attempt) as met:
        yield met


def die_after_commit(*types: Named) -> AbstractContextManager[list[str]]:
    """Let the worker die right after the outcome is committed.

    Callbacks of ``transaction.on_commit``, signals and hooks are not called. The outcome in the database is
    complete.
    """
    return fault("die_after_commit", types, lose_callbacks)


def lose_lease(*types: Named) -> AbstractContextManager[list[str]]:
    """Let the lease lapse before the handler is called: the work is taken away, and the outcome is refused.

    The handler finds ``ctx.signal`` set, with the reason ``taken_by_another_worker``. What it writes in the
    transaction of the outcome is rolled back. The work is delivered again, as its next attempt.
    """
    return fault("lose_lease", types, run_without_lease)


@contextmanager
def lose_database(*types: Named, after: int = 0) -> Iterator[list[str]]:
    """Let statements of the attempt fail with OperationalError, once ``after`` statements have succeeded.

    The attempt fails, and is retried as the policy of the work says. AssertionError tells if no attempt had
    as many statements.
    """
    most_sent = 0

    def attempt(due: list[Delivery], services: DrainServices) -> list[Ended]:
        nonlocal most_sent
        sent = 0

        def refuse_later(send: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
            nonlocal sent
            sent += not sql.startswith(ENDS)
            if sent > after and not sql.startswith(ENDS):
                raise OperationalError("the connection to the database was lost (faults.lose_database)")
            return send(sql, params, many, context)

        @contextmanager
        def until_lost(call: HandlerCall) -> Iterator[None]:
            with connections[alias()].execute_wrapper(refuse_later), savepoints(call):
                yield

        outcomes = run_here(due, services, until_lost)
        most_sent = max(most_sent, sent)
        return [(each, running.settled(each, settlement, services)) for each, settlement in outcomes]

    with fault("lose_database", types, attempt) as met:
        yield met
    if most_sent <= after:
        raise AssertionError(
            f"faults.lose_database(after={after}) failed no statement: "
            f"the attempts had at most {counted(most_sent, 'statement')}."
        )


@contextmanager
def fault(name: str, types: tuple[Named, ...], attempt: Attempting) -> Iterator[list[str]]:
    """Make the first attempt of each work of these types by ``attempt``, within the block."""
    names = {known_type(type).name for type in types}
    met: list[str] = []

    def strikes(due: list[Delivery]) -> Attempting | None:
        fresh = [
            each.row.id for each in due if each.row.id not in met and each.type in (names or {each.type})
        ]
        met.extend(fresh)
        return attempt if fresh else None

    running.faults.append(strikes)
    try:
        yield met
    finally:
        running.faults.remove(strikes)
    if not met:
        whose = f" of {', '.join(sorted(names))}" if names else ""
        raise AssertionError(
            f"faults.{name}() met no work{whose}: drain() has run none within the block, or their attempts "
            "failed."
        )


def die_before_commit(due: list[Delivery], services: DrainServices) -> tuple[list[Ended], list[Ended]]:
    """Run works; settle those that failed, and lose the outcomes of the others. Return the ends of both.

    The transaction in which an outcome was written is rolled back.
    """

    def dying(call: HandlerCall) -> AbstractContextManager[None]:
        if call.transactions is not None:
            call.transactions.dies_before_commit = True
        return savepoints(call)

    outcomes = run_here(due, services, dying)
    lost = [each for each, end in outcomes if each.lost or (end and isinstance(end.ending, Success))]
    settled = settle_all([ended for ended in outcomes if ended[0] not in lost], services)
    ends = {settlement.row.id: settlement for settlement in lose(lost)}
    return settled, [(delivery, ends.get(delivery.row.id)) for delivery in lost]


def lose_callbacks(due: list[Delivery], services: DrainServices) -> list[Ended]:
    """Run works and settle them, and drop what waits for the commit."""
    with as_of_test_case(transaction.atomic(using=alias())):
        outcomes = run_and_settle(due, services)
        take_commit_callbacks(connections[alias()])
    return outcomes


def run_without_lease(due: list[Delivery], services: DrainServices) -> list[Ended]:
    """Run works that are taken away once their attempts have begun; their outcomes are refused."""

    def without_lease(call: HandlerCall) -> AbstractContextManager[None]:
        lose(due)
        for delivery in due:
            delivery.abort(AbortReason.TAKEN_BY_ANOTHER_WORKER)
        return savepoints(call)

    run_and_settle(due, services, without_lease)
    return [(delivery, None) for delivery in due]


def lose(due: list[Delivery]) -> list[Settlement]:
    """Let the leases of works lapse, and reclaim the works; return the settlements of those that are dead."""
    leases.renew({each.row.id: each.row.delivery for each in due}, WORKER, 0.0)
    return [settlement for settlement in reclaim() if not settlement.will_retry]
