"""The transactions of one attempt: none, one around everything, or those of prepare and complete."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, TypeVar, cast

from django.db import Error, InterfaceError, OperationalError

from django_ayework.compat import blocks_of, take_commit_callbacks
from django_ayework.define.context import AbortReason, Context
from django_ayework.define.plans import forgetting, root_of
from django_ayework.define.types import AnyWorkType
from django_ayework.errors import Aborted, InvalidInstruction
from django_ayework.flow.context_services import EngineServices
from django_ayework.flow.hooks import report
from django_ayework.flow.settle import Settlement, settle_here, was_settled
from django_ayework.flow.uncommitted import settling
from django_ayework.store.attempts import write_progress
from django_ayework.store.connections import unwound
from django_ayework.store.database import (
    atomic,
    connection,
    is_contention,
    is_spoiled,
    noting_rollbacks,
    open_transactions,
)
from django_ayework.store.leases import holders_of
from django_ayework.store.rows import lock_rows
from django_ayework.worker.handlers import in_thread, require_plain_act, settlement_of
from django_ayework.worker.in_flight import Delivery, loss_of, warn_if_late
from django_ayework.worker.interruption import forget_connection
from django_ayework.worker.threads import Recovery

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

#: Seconds between two looks at a work whose commit got no answer: the first pause, and the longest.
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0


def noted(method: F) -> F:
    """Note the call of a method until the block or the coroutine that it returns begins."""

    @wraps(method)
    def call(self: AttemptTransactions, *given: Any) -> Any:
        self.not_begun.add(method.__name__)
        return method(self, *given)

    return cast(F, call)


class AttemptTransactions:
    """Opens the transactions of an attempt, and settles the work in the one that is open at its end.

    As a context manager it surrounds the handler and its conclusion. With ``stored=False`` the work is in no
    table: transactions are opened, and nothing is settled. Made in the thread of the handler.
    """

    def __init__(
        self, delivery: Delivery, work_type: AnyWorkType, services: EngineServices, stored: bool
    ) -> None:
        self.delivery = delivery
        #: How many transactions were open around the attempt: those of a test.
        self.depth = open_transactions()
        #: The settlement in a transaction of the attempt's own.
        self.settlement: Settlement | None = None
        #: The error that has rolled back such a transaction.
        self.undone_by: BaseException | None = None
        #: A test lets the worker die once the outcome is written, before that is committed.
        self.dies_before_commit = False
        self._work_type = work_type
        self._services = services
        self._stored = stored
        self._thread = threading.get_ident()
        #: The transaction that is open until the handler has returned.
        self._surrounding: OwnTransaction | None = None
        #: The outcome given in the block of complete.
        self.given: object = None
        self._used: tuple[str, ...] = ()
        #: The stages that were called, and whose block was not entered or whose coroutine was not awaited.
        self.not_begun: set[str] = set()
        self._preparing = False
        #: Whether the work's thread is to complete, and has not ended that: the handler may be cancelled.
        self.is_completing = False

    def __enter__(self) -> None:
        """Open the transaction of a type with ``atomic=True``."""
        if self._work_type.settings.atomic:
            self._surrounding = OwnTransaction(self, settles=True).__enter__()

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        """Commit the transaction that is open, or roll it back because of an error."""
        own, self._surrounding = self._surrounding, None
        if own is not None:
            own.__exit__(kind, error, trace)

    def conclude(self, context: Context, returned: object) -> Settlement:
        """Return the settlement of a handler that returned, written already if a transaction is open."""
        if self.delivery.lost is not None:
            raise Aborted(str(self.delivery.lost), id=context.id)
        self._require_begun()
        is_given = self.given is not None or self.settlement is not None
        if is_given and returned is not None and returned is not self.given:
            raise InvalidInstruction(
                f"the handler of {self._work_type.name!r} returned {returned!r}, but complete has given "
                "another outcome already; return that one, or nothing.",
                id=self.delivery.row.id,
                code="outcome-given-twice",
            )
        if self.settlement is not None:
            return self.settlement
        outcome = self.given if is_given else returned
        settlement = settlement_of(self._work_type, self.delivery, outcome, context)
        if self._surrounding is not None:
            self._settle(settlement, self._surrounding)
            self.settlement = settlement
        return settlement

    @noted
    @contextmanager
    def prepare(self) -> Generator[None]:
        """Open a transaction that commits at the end of the block."""
        self._require("prepare")
        self._preparing = True
        try:
            with OwnTransaction(self, settles=False):
                yield
        finally:
            self._preparing = False

    @noted
    @contextmanager
    def complete(self, context: Context) -> Generator[None]:
        """Open a transaction and see that the work is ours; it commits when the handler has returned.

        An error inside rolls it back at once, and with it the instructions that were built.
        """
        self._require("complete")
        before = len(context.built)
        with ExitStack() as on_error:
            on_error.push(self.__exit__)
            self._surrounding = OwnTransaction(self, settles=True).__enter__()
            self._require_own()
            with forgetting(context, before):
                yield
                self.given = root_of(context, since=before)
            on_error.pop_all()

    @noted
    async def aprepare(self, act: Callable[[], T]) -> T:
        """Run ``act`` in a transaction."""
        self._require("prepare", is_async=True)
        self._preparing = True
        try:
            return await in_thread(partial(self._prepared, act))
        finally:
            self._preparing = False

    @noted
    async def acomplete(self, context: Context, act: Callable[[], T]) -> T:
        """Run ``act`` and settle the work in one transaction, which has committed when this returns.

        It cannot stay open until the handler returns: other coroutines share its connection.
        """
        self._require("complete", is_async=True)
        self.is_completing = True
        return await in_thread(partial(self._complete_here, context, act))

    def _prepared(self, act: Callable[[], T]) -> T:
        with OwnTransaction(self, settles=False):
            returned = act()
            require_plain_act(self._work_type, "prepare", returned)
            return returned

    def _complete_here(self, context: Context, act: Callable[[], T]) -> T:
        before = len(context.built)
        try:
            with forgetting(context, before), OwnTransaction(self, settles=True) as own:
                self._require_own()
                returned = act()
                require_plain_act(self._work_type, "complete", returned)
                outcome = root_of(context, since=before) if returned is None else returned
                settlement = settlement_of(self._work_type, self.delivery, outcome, context)
                self._settle(settlement, own)
            self.given, self.settlement = outcome, settlement
            return returned
        finally:
            self.is_completing = False

    def _settle(self, settlement: Settlement, own: OwnTransaction) -> None:
        """Write the outcome within the transaction; raise when the work is somebody else's meanwhile."""
        if (refusal := own.spoilt()) is not None:
            raise refusal
        if not self._stored:
            return
        id, delivery = settlement.row.id, settlement.row.delivery
        progress = self._services.latest_progress(id)
        if progress is not None:
            write_progress({id: (delivery, progress)})
        if settle_here([settlement]).refused:
            raise self._lost(loss_of(self.delivery, holders_of([id]).get(id)))
        if self.dies_before_commit:
            raise self._lost(None)
        own.settlement = settlement
        warn_if_late(self.delivery, "settled")

    def _require_own(self) -> None:
        """Lock the work; raise when it is somebody else's meanwhile."""
        id = self.delivery.row.id
        if self._stored and (reason := loss_of(self.delivery, lock_rows([id]).get(id))) is not None:
            raise self._lost(reason)

    def _lost(self, reason: AbortReason | None) -> Aborted:
        """Note that nothing more is to be written of this attempt; return the error to raise."""
        self.delivery.lost = reason or AbortReason.TAKEN_BY_ANOTHER_WORKER
        self.delivery.signal.heed()  # the handler gets the error that this returns
        self.delivery.abort(self.delivery.lost)
        return Aborted(str(self.delivery.lost), id=self.delivery.row.id)

    def _require_begun(self) -> None:
        """Raise when the handler called a stage and did nothing with what it got: nothing of it has run."""
        for stage in self.not_begun:
            word = "await" if stage.startswith("a") else "with"
            raise InvalidInstruction(
                f"{self._work_type.name}: ctx.{stage} was called without {word}, so nothing of it has run; "
                f"write {word} ctx.{stage}({'a_function' if word == 'await' else ''}).",
                id=self.delivery.row.id,
                code="stage-not-begun",
            )

    def _require(self, stage: str, is_async: bool = False) -> None:
        """Raise when this is not the moment for a stage."""
        self.not_begun.discard(f"a{stage}" if is_async else stage)
        self._require_begun()
        problem = self._misplaced(stage, is_async) or self._out_of_order(stage)
        if problem:
            raise InvalidInstruction(
                f"{self._work_type.name}: {problem}.",
                id=self.delivery.row.id,
                code="prepare-complete-refused",
            )
        self._used += (stage,)

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
        if not self._work_type.is_async and len(blocks_of(connection())) != self.depth:
            return f"{stage} cannot be used inside transaction.atomic(); it opens a transaction itself"
        return ""


@dataclass(eq=False)
class OwnTransaction:
    """A transaction that an attempt opens through the engine.

    With ``settles`` it is the one in which the work ends. Then callbacks that wait for its commit are taken
    from Django and called here, each by itself: Django drops those behind one that raises, and all of them
    when the answer to the commit is lost.
    """

    attempt: AttemptTransactions
    settles: bool
    #: The outcomes written in it.
    settlement: Settlement | None = None

    def __enter__(self) -> OwnTransaction:
        """Open it. Raises InvalidInstruction where an open transaction would keep it from committing."""
        if open_transactions() != self.attempt.depth:
            raise self._refusal("open one inside transaction.atomic() that is left open")
        if not self.attempt.depth and not connection().get_autocommit():
            raise self._refusal("open a transaction while autocommit is off")
        self._blocks = ExitStack()
        self._blocks.enter_context(atomic())
        self._blocks.enter_context(noting_rollbacks())
        self._outer, settling.id = settling.id, self.attempt.delivery.row.id if self.settles else ""
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        """Commit it, or roll it back: also when a block inside is still open, whose end nobody knows."""
        settling.id = self._outer
        try:
            self._end(error, trace)
        except BaseException as uncommitted:
            error = uncommitted
            raise
        finally:
            self.attempt.undone_by = error

    def _end(self, error: BaseException | None, trace: Any) -> None:
        delivery, depth = self.attempt.delivery, self.attempt.depth
        left = unwound(connection(), depth + 1, error)
        if left and error is None:
            refusal: BaseException | None = self._refusal(
                "leave transaction.atomic() open inside its transaction"
            )
        else:
            refusal = error or self.spoilt()
        if refusal is not None:
            self._blocks.__exit__(type(refusal), refusal, trace)
            if error is None:
                raise refusal
            return
        # Callbacks that wait for a test's transaction go on waiting.
        callbacks = take_commit_callbacks(connection()) if self.settles and not depth else []
        try:
            self._blocks.__exit__(None, None, None)
        except (OperationalError, InterfaceError) as unanswered:
            if self.settlement is None or depth or not self._has_committed(self.settlement, unanswered):
                raise
        if self.settlement is not None:
            delivery.settled = True
        for callback in callbacks:
            try:
                callback.run()
            except BaseException as raised:  # whatever it is, the work has succeeded
                message = f"work {delivery.row.id} had succeeded when {callback.run!r} raised"
                report(raised, "commit", message)

    def spoilt(self) -> InvalidInstruction | None:
        """Return an error if the commit would roll back unnoticed: after a caught error, or a close."""
        if not is_spoiled():
            return None
        return self._refusal(
            "catch an error of the database in its transaction, unless the failing part is in "
            "transaction.atomic() of its own, and not to close the connection"
        )

    def _has_committed(self, settlement: Settlement, unanswered: Error) -> bool:
        """Read whether the database has committed a transaction without an answer.

        While it cannot be reached, look again as long as the lease lasts: to guess would blame a handler for
        a work that has succeeded.
        """
        if is_contention(unanswered):
            return False
        recovery = Recovery(FIRST_PAUSE, LONGEST_PAUSE)
        while True:
            forget_connection(connection())
            try:
                settled = was_settled(settlement)
            except Error as error:
                message = f"the commit of work {settlement.row.id} got no answer"
                report(error, "commit", message, brief=True)
                settled = None
            if settled is not None or self.attempt.delivery.has_lapsed(time.monotonic()):
                return bool(settled)
            time.sleep(recovery.fail())

    def _refusal(self, act: str) -> InvalidInstruction:
        row = self.attempt.delivery.row
        return InvalidInstruction(
            f"{row.type}: expected the handler not to {act}.", id=row.id, code="transaction-left-open"
        )
