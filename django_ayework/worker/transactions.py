"""The transactions of one attempt: none, one around everything, or those of prepare and complete."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from asgiref.sync import sync_to_async
from django.db import Error, InterfaceError, OperationalError

from django_ayework.define.context import AbortReason, Context
from django_ayework.define.plans import forgetting, root_of
from django_ayework.define.registry import AnyWorkType
from django_ayework.errors import Aborted, InvalidInstruction
from django_ayework.flow.events import report
from django_ayework.flow.services import EngineServices
from django_ayework.flow.settle import Settlement, settle_here, was_settled
from django_ayework.store.attempts import write_progress
from django_ayework.store.connections import defuse
from django_ayework.store.database import atomic, connection, is_contention, open_transactions
from django_ayework.store.locks import Holder, holders_of
from django_ayework.store.rows import lock_rows
from django_ayework.worker.delivery import Delivery, loss_of, warn_if_late
from django_ayework.worker.handlers import require_plain_act, settlement_of
from django_ayework.worker.interruption import forget_connection
from django_ayework.worker.threads import Recovery

# --- own transaction ---
# A transaction of an attempt's own: what commits with it, and what follows from the commit.

logger = logging.getLogger("django_ayework")

#: Seconds between two looks at a work whose commit got no answer: the first pause, and the longest.
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0


class OwnTransaction:
    """A transaction that a handler has opened through the engine; ``depth`` is what was open around it.

    With ``settles`` it is the one in which the work ends. Then callbacks that wait for its commit are taken
    from Django and called here, each by itself: Django drops those behind one that raises, and all of them
    when the answer to the commit is lost.
    """

    __slots__ = ("_atomic", "_delivery", "_depth", "_settles", "settlement")

    def __init__(self, delivery: Delivery, depth: int, settles: bool) -> None:
        self._delivery = delivery
        self._depth = depth
        self._settles = settles
        self._atomic: AbstractContextManager[None] | None = None
        #: What was written in it.
        self.settlement: Settlement | None = None

    def __enter__(self) -> OwnTransaction:
        """Open it, where nothing else is open that would keep it from committing."""
        database = connection()
        if open_transactions() != self._depth:
            raise self._refusal("open one inside transaction.atomic() that is left open")
        if not self._depth and not database.get_autocommit():
            raise self._refusal("open a transaction while autocommit is off")
        transaction = atomic()
        transaction.__enter__()
        self._atomic = transaction
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commit it, or roll it back: also when a block inside is still open, whose end nobody knows."""
        left = unwound(self._depth + 1, error)
        if error is not None or left:
            refusal = error or self._refusal("leave transaction.atomic() open inside its transaction")
            self._end(type(refusal), refusal, trace)
            if error is None:
                raise refusal
            return
        callbacks = self._callbacks()
        try:
            self._end(None, None, None)
        except (OperationalError, InterfaceError) as unanswered:
            if self.settlement is None or self._depth or not self._has_committed(unanswered):
                raise
        if self.settlement is not None:
            self._delivery.settled = True
        for callback in callbacks:
            self._call(callback)

    def _end(self, *error: Any) -> None:
        """End Django's transaction."""
        if self._atomic is not None:
            self._atomic.__exit__(*error)

    def _callbacks(self) -> Sequence[Callable[[], object]]:
        """Take over the callbacks that wait for the commit; those of a test's transaction go on waiting."""
        if not self._settles or self._depth:
            return ()
        database: Any = connection()
        waiting, database.run_on_commit = database.run_on_commit, []
        return [each[1] for each in waiting]

    def _call(self, callback: Callable[[], object]) -> None:
        """Call what waited for the commit; whatever it raises, the work has succeeded."""
        try:
            callback()
        except BaseException as error:
            report(error, "commit", f"work {self._delivery.row.id} had succeeded when {callback!r} raised")

    def _has_committed(self, unanswered: Error) -> bool:
        """Read whether the database has committed what it did not answer for.

        While it cannot be reached, look again as long as the lease lasts: to guess would blame a handler for
        a work that has succeeded.
        """
        if self.settlement is None or is_contention(unanswered):
            return False
        recovery = Recovery(FIRST_PAUSE, LONGEST_PAUSE)
        while True:
            forget_connection(connection())
            try:
                settled = was_settled(self.settlement)
            except Error as error:
                message = f"the commit of work {self._delivery.row.id} got no answer"
                report(error, "commit", message, brief=True)
                settled = None
            if settled is not None or self._delivery.has_lapsed(time.monotonic()):
                return bool(settled)
            time.sleep(recovery.fail())

    def _refusal(self, act: str) -> InvalidInstruction:
        row = self._delivery.row
        return InvalidInstruction(f"{row.type}: expected the handler not to {act}.", id=row.id)


def unwound(depth: int, error: BaseException | None) -> bool:
    """Roll back the blocks of ``transaction.atomic()`` that were left open inside; tell whether any were."""
    blocks: list[Any] = connection().atomic_blocks
    left = len(blocks) > depth
    while len(blocks) > depth:
        block = blocks[-1]
        block.__exit__(Error, error or Error("left open"), None)
        defuse(block)
    return left


# --- stages ---
# The transactions of one attempt: none, one around everything, or those of prepare and complete.

T = TypeVar("T")


class AttemptTransactions:
    """Opens the transactions of an attempt, and settles the work in the one that is open at its end.

    With ``stored=False`` the work is in no table: transactions are opened, and nothing is settled.
    """

    __slots__ = (
        "_delivery", "_depth", "_open", "_preparing", "_said", "_thread", "_used",
        "_work_type", "services", "settlement", "stored", "undone_by",
    )  # fmt: skip

    def __init__(
        self, delivery: Delivery, work_type: AnyWorkType, services: EngineServices, stored: bool = True
    ) -> None:
        self.stored = stored
        #: What was settled in a transaction of the attempt's own.
        self.settlement: Settlement | None = None
        #: The error that has rolled back such a transaction.
        self.undone_by: BaseException | None = None
        self._delivery = delivery
        self._work_type = work_type
        self.services = services
        #: The transaction that is open until the handler has returned; kept when it has committed.
        self._open: OwnTransaction | None = None
        self._said: object = None  # the outcome that complete's block has given
        self._used: set[str] = set()
        self._preparing = False
        self._depth = 0
        self._thread = 0

    # --- for the engine -----------------------------------------------------------------------------------

    def __enter__(self) -> None:
        """Surround a handler and its conclusion."""
        self._depth, self._thread = open_transactions(), threading.get_ident()
        if self._work_type.settings.atomic:
            self._begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commit what is open, or roll it back."""
        if self._open is None:
            return
        self.undone_by = error
        try:
            self._open.__exit__(kind, error, trace)
        except BaseException as uncommitted:
            self.undone_by = uncommitted
            raise

    def conclude(self, context: Context, returned: object) -> Settlement:
        """Return the settlement of a handler that returned, written already if a transaction is open."""
        if self._delivery.lost is not None:
            raise Aborted(str(self._delivery.lost), id=context.id)
        if returned is not None and self.settlement is not None and returned is not self._said:
            raise self._contradiction(returned)
        if self.settlement is not None:
            return self.settlement
        settlement = settlement_of(self._work_type, context, self._delivery.row, self.outcome(returned))
        if self._open is not None:
            self._settle(settlement, self._open)
            self.settlement = settlement
            return settlement
        return settlement

    def outcome(self, returned: object) -> Any:
        """Return the outcome: what complete's block gave, else what the handler returned."""
        if self._said is None or returned is None or returned is self._said:
            return returned if self._said is None else self._said
        raise self._contradiction(returned)

    # --- for the handler ----------------------------------------------------------------------------------

    @contextmanager
    def prepare(self) -> Generator[None]:
        """Open a transaction that commits at the end of the block."""
        self._require("prepare")
        self._preparing = True
        try:
            with self._undoing(), self._transaction(settles=False):
                yield
        finally:
            self._preparing = False

    @contextmanager
    def complete(self, context: Context) -> Generator[None]:
        """Open a transaction and see that the work is ours; it commits when the handler has returned.

        An error inside rolls it back at once, and with it the instructions that were built.
        """
        self._require("complete")
        before = len(context.built)
        with self._undoing(), ExitStack() as on_error:
            on_error.push(self._close)
            self._begin()
            self._require_own()
            with forgetting(context, before):
                yield
                self._said = root_of(context, since=before)
            on_error.pop_all()

    async def aprepare(self, act: Callable[[], T]) -> T:
        """Run ``act`` in a transaction."""
        self._require("prepare", is_async=True)
        self._preparing = True
        try:
            return await in_thread(partial(self._prepared, act))
        finally:
            self._preparing = False

    async def acomplete(self, context: Context, act: Callable[[], T]) -> T:
        """Run ``act`` and settle the work in one transaction, which has committed when this returns.

        It cannot stay open until the handler returns: other coroutines share its connection.
        """
        self._require("complete", is_async=True)
        return await in_thread(partial(self._completed, context, act))

    # --- within -------------------------------------------------------------------------------------------

    def _prepared(self, act: Callable[[], T]) -> T:
        with self._undoing(), self._transaction(settles=False):
            returned = act()
            require_plain_act(self._work_type, "prepare", returned)
            return returned

    def _completed(self, context: Context, act: Callable[[], T]) -> T:
        before = len(context.built)
        with self._undoing(), forgetting(context, before), self._transaction() as own:
            self._require_own()
            returned = act()
            require_plain_act(self._work_type, "complete", returned)
            said = root_of(context, since=before) if returned is None else returned
            settlement = settlement_of(self._work_type, context, self._delivery.row, said)
            self._settle(settlement, own)
        self._said, self.settlement = said, settlement
        return returned

    def _begin(self) -> None:
        """Open the transaction that stays open until the handler has returned."""
        self._open = self._transaction().__enter__()

    def _transaction(self, settles: bool = True) -> OwnTransaction:
        """Return a transaction of the attempt's own."""
        return OwnTransaction(self._delivery, self._depth, settles)

    def _close(self, *error: Any) -> None:
        """Roll the open transaction back, because of this error."""
        own, self._open = self._open, None
        if own is not None:
            own.__exit__(*error)

    @contextmanager
    def _undoing(self) -> Generator[None]:
        """Note the error that rolls a transaction back."""
        try:
            yield
        except BaseException as error:
            self.undone_by = error
            raise

    def _settle(self, settlement: Settlement, own: OwnTransaction) -> None:
        """Write the outcome within the transaction; raise when the work is somebody else's meanwhile."""
        if not self.stored:
            return
        id, delivery = settlement.row.id, settlement.row.delivery
        progress = self.services.latest_progress(id)
        if progress is not None:
            write_progress({id: (delivery, progress)})
        if settle_here([settlement]).refused:
            raise self._lost(loss_of(self._delivery, holders_of([id]).get(id)))
        own.settlement = settlement
        warn_if_late(self._delivery, "settled")

    def _require_own(self) -> None:
        """Lock the work; raise when it is somebody else's meanwhile."""
        id = self._delivery.row.id
        if self.stored:
            row = lock_rows([id]).get(id)
            holder = Holder(row.status, row.delivery, row.worker) if row is not None else None
            if (reason := loss_of(self._delivery, holder)) is not None:
                raise self._lost(reason)

    def _lost(self, reason: AbortReason | None) -> Aborted:
        """Note that nothing more is to be written of this attempt; return the error that says why."""
        self._delivery.lost = reason or AbortReason.TAKEN_BY_ANOTHER_WORKER
        self._delivery.signal.heed()  # the error that this returns tells the handler
        self._delivery.abort(self._delivery.lost)
        return Aborted(str(self._delivery.lost), id=self._delivery.row.id)

    def _require(self, stage: str, is_async: bool = False) -> None:
        """Raise when this is not the moment for a stage."""
        problem = self._misplaced(stage, is_async) or self._out_of_order(stage)
        if problem:
            raise InvalidInstruction(f"{self._work_type.name}: {problem}.", id=self._delivery.row.id)
        self._used.add(stage)

    def _misplaced(self, stage: str, is_async: bool) -> str:
        """Return why a stage cannot be used in this kind of handler, or here in it."""
        if self._work_type.settings.atomic:
            return f"{stage} cannot be used in an atomic=True work, which is one transaction already"
        if is_async and not self._work_type.is_async:
            return f"a{stage} is for async handlers; write with ctx.{stage}()"
        if is_async:
            return ""
        if self._work_type.is_async:
            return f"{stage} is for plain handlers; write await ctx.a{stage}(a_function)"
        if threading.get_ident() != self._thread:
            return f"{stage} can only be used in the thread of the handler"
        return ""

    def _out_of_order(self, stage: str) -> str:
        """Return why a stage comes too late or too early."""
        if stage in self._used:
            return f"{stage} can only be used once"
        if "complete" in self._used:
            return f"{stage} cannot be used after complete"
        if self._preparing:
            return f"{stage} cannot be used inside prepare"
        if not self._work_type.is_async and len(connection().atomic_blocks) != self._depth:
            return f"{stage} cannot be used inside transaction.atomic(); it opens a transaction itself"
        return ""

    def _contradiction(self, returned: object) -> InvalidInstruction:
        return InvalidInstruction(
            f"the handler of {self._work_type.name!r} returned {returned!r}, but complete has given another "
            "outcome already; return that one, or nothing.",
            id=self._delivery.row.id,
        )


async def in_thread(act: Callable[[], T]) -> T:
    """Run a part of an async handler in the work's thread.

    An error is raised here, not passed on by a future: asyncio would close the whole attempt because of a
    GeneratorExit.
    """
    returned, error = await sync_to_async(caught)(act)
    if error is not None:
        raise error
    return returned  # type: ignore[return-value]


def caught(act: Callable[[], T]) -> tuple[T | None, BaseException | None]:
    """Return what a function returns, or what it raises."""
    try:
        return act(), None
    except BaseException as error:
        return None, error
