"""Running what is queued: ``drain()``, ``tick()``, a worker beside a test."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from asgiref.sync import async_to_sync, sync_to_async
from django.db import DatabaseError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ayework.conf import get_settings
from django_ayework.define.registry import registry
from django_ayework.errors import ChainNotFound, InvalidInstruction, InvalidWorkId
from django_ayework.flow.controls import current_controls
from django_ayework.flow.effects import add_group_listener, remove_group_listener, report_all_unhandled
from django_ayework.flow.firing import fire_due
from django_ayework.flow.maintenance import expire_gates
from django_ayework.flow.outcomes import as_failure
from django_ayework.flow.recheck import recheck_leftovers
from django_ayework.flow.schedules import sync
from django_ayework.flow.services import EngineServices
from django_ayework.flow.settle import Settlement, Success, settle
from django_ayework.flow.states import WorkState, find_state
from django_ayework.flow.unit_of_work import ContributionFailed
from django_ayework.rules.decisions import OFFER_AGAIN, parked_again
from django_ayework.rules.durations import later
from django_ayework.rules.explain.reasons import counted
from django_ayework.rules.schedules import BOUND
from django_ayework.rules.states import Outcome, Status
from django_ayework.store import claims, transitions
from django_ayework.store.attempts import write_progress
from django_ayework.store.clock import clock
from django_ayework.store.lanes import lanes_with_work
from django_ayework.store.rows import WorkRow
from django_ayework.worker.allocation import claim_groups_of, size_of
from django_ayework.worker.attempt import Opened, awaited, carried_out, is_parked, run
from django_ayework.worker.batch import Batch, BatchRun, Ended, awaited_run, run_batch
from django_ayework.worker.claimer import deliveries_of
from django_ayework.worker.delivery import Delivery
from django_ayework.worker.worker import Worker

# --- calling ---
# Calling a handler in the test's own thread and transaction.

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


# --- draining ---
# ``drain()``: run everything that is due, here and now.

logger = logging.getLogger("django_ayework")

WORKER = "drain"
STAGE_BATCH = 500


@dataclass(slots=True)
class DrainReport:
    """What was run: ``ran`` counts attempts, ``states`` holds each work that ran, as it stands now."""

    ran: int = 0
    succeeded: int = 0
    dead: int = 0
    deferred: int = 0
    retried: int = 0
    states: list[WorkState] = field(default_factory=list)


class DrainServices(EngineServices):
    """Services that keep what failed the last attempt of each work."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: dict[str, BaseException] = {}

    def note_failure(self, id: str, error: BaseException) -> None:
        """Keep the error of an attempt."""
        self.failures[id] = error


def drain(limit: int | None = None, *, raises: bool = True) -> DrainReport:
    """Run everything due, inside the test's transaction, until nothing is due or after ``limit`` attempts.

    Works in a plain ``TestCase``: no worker, no threads; ``on_commit`` callbacks run as if committed. What is
    due later stays; :func:`time_travel` makes it due.

    At the end the exception of a failed work is raised, with its traceback; those of several works come as an
    ``ExceptionGroup``. A work counts as failed if the last attempt that this call made of it failed, whether
    the work is dead or will be retried, unless it was cancelled or completed since. ``Defer``,
    ``Reschedule`` and ``Abort`` are no failures. ``raises=False`` returns the report instead.

    Example::

        enqueue(add(a=1, b=2))
        assert drain().succeeded == 1
    """
    report, failures = run_due(limit)
    if raises:
        raise_failures(report, failures)
    return report


async def adrain(limit: int | None = None, *, raises: bool = True) -> DrainReport:
    """See drain()."""
    report, failures = await sync_to_async(run_due)(limit)
    if raises:
        raise_failures(report, failures)
    return report


def run_due(limit: int | None) -> tuple[DrainReport, dict[str, BaseException]]:
    """Run everything due; return the report, and the errors of failed works by their ids."""
    report, ids, services = DrainReport(), dict[str, None](), DrainServices()
    add_group_listener(report_all_unhandled)
    try:
        run_commit_callbacks()
        while (limit is None or report.ran < limit) and (due := next_due(limit and limit - report.ran)):
            for delivery, settlement in attempted(due, services):
                report.ran += 1
                count(report, settlement)
                ids[delivery.row.id] = None
    finally:
        remove_group_listener(report_all_unhandled)
    report.states = [state for id in ids if (state := find_state(id)) is not None]
    return report, services.failures


def raise_failures(report: DrainReport, failures: dict[str, BaseException]) -> None:
    """Raise what works failed of. An exception that failed a whole batch is raised once."""
    works: dict[int, list[WorkState]] = {}
    for state in report.states:
        if state.id in failures and state.status not in (Status.SUCCESS, Status.CANCELLED):
            works.setdefault(id(failures[state.id]), []).append(state)
    errors = [failures[states[0].id] for states in works.values()]
    for error, states in zip(errors, works.values(), strict=True):
        error.add_note(note_of(states))
    if len(errors) > 1:
        raise BaseExceptionGroup("several works failed in drain()", errors)
    for error in errors:
        raise error


def note_of(states: list[WorkState]) -> str:
    """Return which works an exception failed, and how to go on without it."""
    first, more = states[0], len(states) - 1
    others = f" and {counted(more, 'more work')}" if more else ""
    return (
        f"Raised in drain() by work {first.id} ({first.type}){others}, attempt {first.attempt} of "
        f"{first.attempts}; the work is {first.status}. drain(raises=False) returns the report instead."
    )


def attempted(due: list[Delivery], services: DrainServices | None = None) -> list[Ended]:
    """Run a work or a batch and settle it; return how each attempt ended."""
    services = services or DrainServices()
    for delivery in due:
        services.failures.pop(delivery.row.id, None)  # of an earlier attempt
    if registry.batch(due[0].type):
        batch = Batch(due)
        batch.start()
        outcomes = run_batch(batch, services, call_batch_here)
    else:
        [delivery] = due
        outcomes = [(delivery, run(delivery, services, carry_out_here))]
        write_progress({id: (delivery.row.delivery, text) for id, text in services.take_progress().items()})
    outcomes = [(each, settled(each, settlement, services)) for each, settlement in outcomes]
    run_commit_callbacks()
    return outcomes


def settled(delivery: Delivery, settlement: Settlement | None, services: DrainServices) -> Settlement | None:
    """Settle an attempt unless it has done so, as a failed one when its outcome cannot be written."""
    if settlement is None or delivery.settled:
        return settlement
    try:
        settle([settlement])
    except (ChainNotFound, ContributionFailed, InvalidInstruction, InvalidWorkId) as error:
        cause = error.cause if isinstance(error, ContributionFailed) else error
        services.note_failure(delivery.row.id, cause)
        settlement = as_failure(settlement, error)
        settle([settlement])
    return settlement


def next_due(most: int | None) -> list[Delivery]:
    """Claim the next due work of any queue, or the next batch of ``most`` works; none when nothing is due."""
    while True:
        stage_due()
        shares = claim_groups_of(lanes_with_work(), current_controls())
        if not shares:
            return []
        due = claim_due(shares[0].queue, shares[0].types, 1)
        for row in due:
            if not is_parked(row):
                size = size_of(row.type) if most is None else min(most, size_of(row.type))
                return deliveries_of(due + claim_due(row.queue, [row.type], size - 1))
            now = clock.now()
            error = parked_again(row.error, now)
            transitions.release({row.id: row.delivery}, WORKER, now + OFFER_AGAIN, error)


def claim_due(queue: str, types: Sequence[str], number: int) -> list[WorkRow]:
    """Claim so many works of a queue."""
    now = clock.now()
    lease = later(now, get_settings().lease)
    return claims.claim(queue, dict.fromkeys(types, number), number, WORKER, now, lease)


def stage_due() -> None:
    """Do what workers do between works."""
    while transitions.stage(clock.now(), STAGE_BATCH):
        continue
    expire_gates()
    recheck_leftovers()
    run_commit_callbacks()


def count(report: DrainReport, settlement: Settlement | None) -> None:
    """Count an attempt by how it ended."""
    if settlement is None:
        return
    ending = settlement.ending
    if isinstance(ending, Success):
        report.succeeded += 1
    elif ending.status is Status.DEAD:
        report.dead += 1
    elif ending.outcome is Outcome.DEFERRED:
        report.deferred += 1
    else:
        report.retried += 1


def run_commit_callbacks() -> None:
    """Run the callbacks that wait for the test's transaction, which never commits."""
    for connection in connections.all(initialized_only=True):
        while connection.in_atomic_block and connection.run_on_commit:
            callbacks, connection.run_on_commit = connection.run_on_commit, []
            for _savepoints, callback, *rest in cast(Sequence[tuple[Any, ...]], callbacks):
                try:
                    callback()
                except Exception:
                    if not any(rest):  # True of a robust callback
                        raise
                    logger.exception("A robust on_commit callback raised.")


# --- running ---
# A real worker beside a test.


@contextmanager
def running_worker(**options: Any) -> Iterator[Worker]:
    """Run a real worker in a thread of this process, for a ``TransactionTestCase``; options are Worker's.

    Example::

        with running_worker(concurrency=2):
            assert enqueue(add(a=1, b=2)).result(timeout=5) == 3
    """
    with Worker(**options) as worker:
        yield worker


# --- ticking ---
# ``tick()``: fire the schedules that are due, here and now.


def tick() -> int:
    """Sync the declared schedules, then fire those that are due; return how many firings queued something.

    A schedule that is seen for the first time begins now, so tick once before travelling in time. What was
    fired is queued; ``drain()`` runs it.

    Example::

        tick()
        time_travel(timedelta(days=1))
        assert tick() == 1
    """
    sync()
    return fire_due(most=2 * BOUND).fired
