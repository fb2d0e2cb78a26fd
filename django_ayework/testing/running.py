"""Running queued works in a test: ``drain()``, ``perform()``, ``tick()``, a worker, and travel in time.

``drain()`` and ``perform()`` use the runner of the worker. They guard it with savepoints, as handlers run in
the test's own thread and transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from asgiref.sync import sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.transaction import TransactionManagementError

from django_ayework.compat import take_commit_callbacks
from django_ayework.define.instructions import Instruction
from django_ayework.define.options import whole_number
from django_ayework.define.requests import WorkRequest, require_no_gate
from django_ayework.define.types import registry
from django_ayework.documentation import documented, logged
from django_ayework.errors import ChainNotFound, InvalidInstruction, InvalidWorkId
from django_ayework.flow.acts import ACTS
from django_ayework.flow.bulk_actions import step
from django_ayework.flow.context_services import EngineServices
from django_ayework.flow.controls import current_controls
from django_ayework.flow.gates import recheck_leftovers
from django_ayework.flow.hooks import report_all_unhandled
from django_ayework.flow.maintenance import expire_blocked
from django_ayework.flow.new_works import Lineage, build_new_work
from django_ayework.flow.notify import settled_groups
from django_ayework.flow.outcomes import as_failure, is_to_be_parked
from django_ayework.flow.scheduler import ALL, fire_due
from django_ayework.flow.schedules import sync
from django_ayework.flow.settle import Settlement, Success, settle
from django_ayework.flow.states import WorkState, find_state
from django_ayework.flow.unit_of_work import ContributionFailed
from django_ayework.logs import logger
from django_ayework.rules.formatting import counted, parked_again
from django_ayework.rules.retry import OFFER_AGAIN
from django_ayework.rules.schedules import BOUND
from django_ayework.rules.states import Outcome, Status
from django_ayework.store import claims, transitions
from django_ayework.store.attempts import write_progress
from django_ayework.store.bulk_actions import next_action_due
from django_ayework.store.database import alias, clock, in_transaction, sync_only
from django_ayework.store.lanes import lanes_with_work
from django_ayework.store.rows import WorkRow
from django_ayework.worker.attempt import Ended, HandlerCall, opened, require_recordable, run
from django_ayework.worker.claimer import deliveries_of
from django_ayework.worker.dispatch import claim_groups_of, size_of
from django_ayework.worker.handlers import require_outputs
from django_ayework.worker.in_flight import Batch, Delivery
from django_ayework.worker.leases import note_deliveries
from django_ayework.worker.worker import Worker

WORKER = "drain"
#: Scheduled works that become pending in one statement.
DUE_BATCH = 500


@dataclass(slots=True)
class DrainReport:
    """The works that ``drain()`` ran, by the ends of their attempts; ``states`` has each work as it stands.

    A due work that dies without an attempt, as its deadline is over, counts in ``ran`` and ``dead``.
    """

    ran: int = 0
    succeeded: int = 0
    dead: int = 0
    deferred: int = 0
    retried: int = 0
    states: list[WorkState] = field(default_factory=list)


class DrainServices(EngineServices):
    """Services that keep the error of the last attempt of each work, if it failed."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: dict[str, BaseException] = {}

    def note_failure(self, id: str, error: BaseException) -> None:
        """Keep the error of an attempt."""
        self.failures[id] = error


def drain(limit: int | None = None, *, raises: bool = True) -> DrainReport:
    """Run due works in the test's transaction until nothing is due, or for ``limit`` attempts.

    It starts no worker and no threads, so a plain ``TestCase`` will do. ``on_commit`` callbacks run as if the
    transaction had committed. Works that are due later stay; :func:`time_travel` makes them due.

    At the end the exception of a failed work is raised, with its traceback. Those of several works are raised
    as an ``ExceptionGroup``. A work has failed if its last attempt in this call failed, whether the work is
    dead or will be retried, unless it was cancelled or completed since. ``Defer``, ``Reschedule`` and
    ``Abort`` are no failures. ``raises=False`` returns the report instead.

    Example::

        enqueue(add(a=1, b=2))
        assert drain().succeeded == 1
    """
    report, failures = sync_only(run_due, "drain")(limit)
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
    if limit is not None:
        whole_number(0)(limit, "limit")
    clock.synchronise()
    report, ids, services = DrainReport(), dict[str, None](), DrainServices()
    settled_groups.subscribe(report_all_unhandled)
    try:
        run_commit_callbacks()
        while (limit is None or report.ran < limit) and (due := next_due(limit and limit - report.ran)):
            for delivery, settlement in attempted(due, services):
                report.ran += 1
                count(report, settlement)
                ids[delivery.row.id] = None
    finally:
        settled_groups.unsubscribe(report_all_unhandled)
    report.states = [state for id in ids if (state := find_state(id)) is not None]
    return report, services.failures


def raise_failures(report: DrainReport, failures: dict[str, BaseException]) -> None:
    """Raise the errors of failed works. An exception that failed a whole batch is raised once."""
    works: dict[int, list[WorkState]] = {}
    for state in report.states:
        if state.id in failures and state.status not in (Status.SUCCESS, Status.CANCELLED):
            works.setdefault(id(failures[state.id]), []).append(state)
    errors = [failures[states[0].id] for states in works.values()]
    for error, states in zip(errors, works.values(), strict=True):
        first, more = states[0], len(states) - 1
        others = f" and {counted(more, 'more work')}" if more else ""
        error.add_note(
            f"Raised in drain() by work {first.id} ({first.type}){others}, attempt {first.attempt} of "
            f"{first.attempts}; the work is {first.status}. drain(raises=False) returns the report instead."
        )
    if len(errors) > 1:
        raise BaseExceptionGroup("several works failed in drain()", errors)
    for error in errors:
        raise error


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


def next_due(most: int | None) -> list[Delivery]:
    """Claim the next due work of any queue, or the next batch of ``most`` works; none when nothing is due."""
    while True:
        do_duties()
        groups = claim_groups_of(lanes_with_work(), current_controls())
        if not groups:
            return []
        due = claim_due(groups[0].queue, groups[0].types, 1)
        for row in due:
            if not is_to_be_parked(row):
                size = size_of(row.type) if most is None else min(most, size_of(row.type))
                return deliveries_of(due + claim_due(row.queue, [row.type], size - 1))
            now = clock.now()
            error = parked_again(row.error, now)
            transitions.release({row.id: row.delivery}, WORKER, now + OFFER_AGAIN, error)


def claim_due(queue: str, types: Sequence[str], number: int) -> list[WorkRow]:
    """Claim so many works of a queue."""
    return claims.claim(queue, dict.fromkeys(types, number), number, claims.new_lease(WORKER))


def do_duties() -> None:
    """Do the duties that workers do between works."""
    while transitions.make_pending(clock.now(), DUE_BATCH):
        continue
    expire_blocked()
    recheck_leftovers()
    run_commit_callbacks()


#: Makes an attempt of claimed works; returns how it ended.
Attempting: TypeAlias = Callable[[list[Delivery], DrainServices], list[Ended]]
Guard: TypeAlias = Callable[[HandlerCall], AbstractContextManager[Any]]  # surrounds a handler
#: The faults of the running test. Each returns what makes an attempt in its place, or None.
faults: list[Callable[[list[Delivery]], Attempting | None]] = []


def attempted(due: list[Delivery], services: DrainServices | None = None) -> list[Ended]:
    """Run a work or a batch and settle it; return how each attempt ended."""
    services = services or DrainServices()
    for delivery in due:
        services.failures.pop(delivery.row.id, None)  # of an earlier attempt
    attempting = next(filter(None, (fault(due) for fault in faults)), run_and_settle)
    outcomes = attempting(due, services)
    run_commit_callbacks()
    return outcomes


def run_and_settle(due: list[Delivery], services: DrainServices, guard: Guard | None = None) -> list[Ended]:
    """Run a work or a batch, and settle the outcomes."""
    return settle_all(run_here(due, services, guard), services)


def settle_all(outcomes: list[Ended], services: DrainServices) -> list[Ended]:
    """Settle the outcomes of attempts."""
    held = {delivery.row.id: delivery.row.delivery for delivery, _ in outcomes}
    write_progress({id: (held[id], text) for id, text in services.take_progress(held).items()})
    return [(each, settled(each, settlement, services)) for each, settlement in outcomes]


def load_of(due: list[Delivery]) -> Delivery | Batch:
    """Return the work, or works of a batch type as a batch."""
    return Batch(due) if registry.batch(due[0].type) else due[0]


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


@dataclass(frozen=True, slots=True)
class Performed:
    """The end of a handler: the value that it ``returned``, or the ``error`` that it raised."""

    returned: Any = None
    error: BaseException | None = None

    @property
    def result(self) -> Any:
        """The result of the work; raises the error if there is one."""
        if self.instruction is not None:
            return getattr(self.instruction, "value", None)
        return self.returned

    @property
    def instruction(self) -> Instruction[Any, Any] | None:
        """The instruction that the handler returned, or None; raises the error if there is one."""
        if self.error is not None:
            raise self.error
        return self.returned if isinstance(self.returned, Instruction) else None


def perform(request: WorkRequest[Any, Any], *, attempt: int = 1) -> Performed:
    """Run the handler of a request once, with its input encoded and decoded. Nothing is queued or settled.

    Example::

        assert perform(add(a=1, b=2)).result == 3
    """
    require_no_gate(request, "perform(work)")
    row = build_new_work(request, {}, Lineage(), clock.now()).row._replace(attempt=attempt, worker="perform")
    delivery = Delivery(row, lease=30.0)
    load = load_of([delivery])
    load.start()
    call, ended = opened(load, EngineServices(), stored=False)
    if call is None:
        settlement: Any = ended[0][1]
        raise AssertionError(f"the work could not be started: {settlement.ending.error}")
    try:
        with call.logged(), savepoints(call), call.transactions or nullcontext():
            output = call.returned()
            if call.is_batch:
                [output] = require_outputs(call.work_type, output, 1)
            call.settlement(call.attempt, output)
    except BaseException as error:
        require_recordable(error)
        return Performed(error=error)
    given = None if call.transactions is None else call.transactions.given
    return Performed(output if given is None else given)


def run_here(due: list[Delivery], services: EngineServices, guard: Guard | None = None) -> list[Ended]:
    """Run a work or a batch in the test's thread and transaction; see ``savepoints``, the usual guard."""
    note_deliveries(delivery for delivery in due if delivery.is_last_attempt)
    load = load_of(due)
    load.start()
    return run(load, services, guard or savepoints)


@contextmanager
def savepoints(call: HandlerCall) -> Iterator[None]:
    """Keep the test's transaction usable.

    A database error would spoil it, so it is rolled back to where the handler began. Any other error keeps
    what the handler wrote, as outside of tests; so does one with which a transaction of the attempt's own was
    rolled back.
    """
    points: list[tuple[BaseDatabaseWrapper, Any]] = [
        (each, each.savepoint()) for each in connections.all(initialized_only=True) if each.in_atomic_block
    ]

    def undo() -> None:
        for connection, point in points:
            connection.needs_rollback = False
            connection.savepoint_rollback(point)

    def keep() -> None:
        try:
            for connection, point in points:
                connection.savepoint_commit(point)
        except DatabaseError:  # one that the handler caught has spoilt the transaction
            undo()
            raise

    try:
        yield
    except BaseException as error:
        own = None if call.transactions is None else call.transactions.undone_by
        if isinstance(error, DatabaseError) and error is not own:
            undo()
        else:
            with suppress(DatabaseError):
                keep()
        raise
    keep()


def run_commit_callbacks() -> None:
    """Run the callbacks that wait for the test's transaction, which never commits."""
    for connection in connections.all(initialized_only=True):
        while connection.in_atomic_block and (callbacks := take_commit_callbacks(connection)):
            for callback in callbacks:
                try:
                    callback.run()
                except Exception:
                    if not callback.robust:
                        raise
                    logger.exception("A robust on_commit callback raised. %s", logged("callback-raised"))


def require_file() -> None:
    """Raise ImproperlyConfigured for an SQLite database in memory, which no two threads can write."""
    name = alias()
    if getattr(connections[name], "is_in_memory_db", bool)():
        raise documented(
            ImproperlyConfigured(
                f"expected the test database {name!r} to be a file for running_worker(), got one in "
                f"memory; set DATABASES[{name!r}]['TEST'] = {{'NAME': BASE_DIR / 'test.sqlite3'}}."
            ),
            "test-database-in-memory",
        )


def require_no_transaction() -> None:
    """Raise TransactionManagementError in a transaction, whose works no thread of a worker could see."""
    if in_transaction():
        raise documented(
            TransactionManagementError(
                "expected running_worker() outside of transactions, got it in one, such as that of a "
                "TestCase: a worker sees only works that are committed. Use a TransactionTestCase, or "
                "pytest.mark.django_db(transaction=True); or call drain() instead."
            ),
            "worker-in-transaction",
        )


@contextmanager
def running_worker(**options: Any) -> Iterator[Worker]:
    """Run a real worker in a thread of this process, for a ``TransactionTestCase``; options are Worker's.

    Example::

        with running_worker(concurrency=2):
            assert enqueue(add(a=1, b=2)).result(timeout=5) == 3
    """
    require_file()
    require_no_transaction()
    with Worker(**options) as worker:
        yield worker


def tick() -> int:
    """Sync the declared schedules, then fire those that are due; return how many firings queued something.

    A schedule that is new begins now, so call ``tick()`` once before ``time_travel()``. The works are queued;
    ``drain()`` runs them.

    Example::

        tick()
        time_travel(timedelta(days=1))
        tick()
        assert_enqueued("shop.report")
    """
    sync()
    return fire_due(most=2 * BOUND, limit=ALL).fired


def run_bulk_actions() -> int:
    """Carry out all bulk actions to their ends, whatever their pace; return how many pages that took."""
    pages = 0
    while (due_at := next_action_due(ACTS)) is not None:
        pages += step(max(due_at, clock.now()))
    return pages
