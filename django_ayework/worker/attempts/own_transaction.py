"""A transaction of an attempt's own: what commits with it, and what follows from the commit."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from django.db import Error, InterfaceError, OperationalError

from django_ayework.errors import InvalidInstruction
from django_ayework.flow.events import report
from django_ayework.flow.settle import Settlement, was_settled
from django_ayework.store.database import atomic, connection, is_contention, open_transactions
from django_ayework.store.threads import defuse
from django_ayework.worker.attempts.delivery import Delivery
from django_ayework.worker.attempts.interruption import forget_connection
from django_ayework.worker.recovery import Recovery

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
