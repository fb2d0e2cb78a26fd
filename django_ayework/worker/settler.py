"""Group commit: whatever outcomes are ready are settled in one transaction.

At rest an outcome is written at once; under load many share one commit, because they gather while the one
before is being written.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress

from django.db import DatabaseError, Error, InterfaceError, OperationalError, connections

from django_ayework.define.signal import AbortReason
from django_ayework.flow.events import report
from django_ayework.flow.services import EngineServices
from django_ayework.flow.settle import Report, Settlement, settle
from django_ayework.flow.trials import as_failure
from django_ayework.store.database import fetch, has_timed_out, is_contention
from django_ayework.store.progress import write_progress
from django_ayework.store.sessions import bounded_statements
from django_ayework.worker.attempts.delivery import Delivery
from django_ayework.worker.attempts.losses import warn_if_late
from django_ayework.worker.failures import log_failures
from django_ayework.worker.slots.turns import NO_TURNS, AnyTurns

logger = logging.getLogger("django_ayework")

Outcome = tuple[Delivery, Settlement]

#: Outcomes in one transaction. A gate and a group are written once in each, however many of theirs it has.
MAX_BATCH = 2000
#: How often a database that answers may refuse a batch, and an outcome alone (which takes about 10 seconds).
BATCH_REFUSALS, MOST_REFUSALS = 3, 8
#: PostgreSQL, after a failover to a standby that is not promoted yet.
READ_ONLY = "25006"
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 5.0


class Settler:
    """A thread that settles outcomes in batches and never loses one while the process lives."""

    def __init__(
        self,
        services: EngineServices,
        settled: Callable[[list[Delivery]], None],
        turns: AnyTurns = NO_TURNS,
    ) -> None:
        self._services = services
        self._turns = turns
        self._ready: deque[Outcome] = deque()
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._sleeps = False
        self._ends = False
        self._settled = settled
        self.thread = threading.Thread(target=self._serve, name="ayework-settler", daemon=True)
        self.gives_up = threading.Event()

    def start(self) -> None:
        """Start the thread."""
        self.thread.start()

    def submit(self, delivery: Delivery, settlement: Settlement) -> None:
        """Hand over an outcome."""
        self._ready.append((delivery, settlement))
        self._turns.after(self._wake)

    def settle_here(self) -> None:
        """Settle in the calling thread what is ready; what cannot be settled at once is left to the other."""
        if not (batch := self._batch()):
            return
        try:
            self._write_progress([delivery for delivery, _ in batch])
            report_ = settle([settlement for _, settlement in batch])
        except Exception:
            self._ready.extendleft(reversed(batch))
            self._turns.after(self._wake)
            return
        self._note(batch, report_)

    def stop(self, timeout: float) -> None:
        """Settle everything in hand, then end; give up on a database that stays away for ``timeout``."""
        self._ends = True
        self._bell.put(None)
        self.thread.join(timeout)
        self.gives_up.set()
        self.thread.join(1)

    def _wake(self) -> None:
        """Wake the thread if there is anything for it."""
        if self._sleeps and self._ready:
            self._sleeps = False
            self._bell.put(None)

    def _serve(self) -> None:
        with bounded_statements():
            while self._has_more():
                with self._turns:
                    if batch := self._batch():
                        self._settle(batch)
        connections.close_all()

    def _has_more(self) -> bool:
        """Wait for outcomes; return False when there will be none any more.

        Whoever hands one over appends it first, and sees second whether this sleeps; here it is the other
        way round. So one of the two sees what the other has done.
        """
        self._sleeps = True
        while not self._ready and not self._ends:
            self._bell.get()
            self._sleeps = True
        self._sleeps = False
        return bool(self._ready) or not self._ends

    def _batch(self) -> list[Outcome]:
        """Return the outcomes that are ready, as many as go into one transaction."""
        batch: list[Outcome] = []
        with suppress(IndexError):  # several threads may take some
            while len(batch) < MAX_BATCH:
                batch.append(self._ready.popleft())
        return batch

    def _settle(self, batch: list[Outcome]) -> None:
        """Settle a batch; when it fails as a whole, each half on its own, and so on to the one that fails it.

        What cannot be written because the worker stops without its database stays in its holdings.
        """
        try:
            self._write_progress([delivery for delivery, _ in batch])
            report_ = self._persistently([settlement for _, settlement in batch])
        except Exception as error:
            if self.gives_up.is_set() and not answers():
                return
            if len(batch) > 1:
                middle = len(batch) // 2
                self._settle(batch[:middle])
                self._settle(batch[middle:])
                return
            report_ = self._as_failure(batch[0], error)
        self._note(batch, report_)

    def _note(self, batch: list[Outcome], report_: Report) -> None:
        """Tell of outcomes that are settled, and of those that came too late."""
        self._settled([delivery for delivery, _ in batch])
        log_failures([settlement for _, settlement in batch], report_.moved)
        for delivery, settlement in batch:
            if settlement.row.id not in report_.refused:
                warn_if_late(delivery, "settled")
        for id in report_.refused:
            logger.warning("The outcome of work %s came too late: somebody else has moved the work.", id)

    def _write_progress(self, deliveries: list[Delivery]) -> None:
        """Write the last progress of works that have ended; for that alone no outcome may wait."""
        if not self._services.has_progress:
            return
        latest = self._services.take_progress([delivery.row.id for delivery in deliveries])
        held = {delivery.row.id: delivery.row.delivery for delivery in deliveries}
        try:
            write_progress({id: (held[id], text) for id, text in latest.items()})
        except DatabaseError as error:
            report(error, "commit", "the progress of works that ended could not be written")

    def _persistently(self, settlements: list[Settlement]) -> Report:
        """Settle; while the database is away or busy, try again."""
        refusals, limit = 0, BATCH_REFUSALS if len(settlements) > 1 else MOST_REFUSALS
        for tries, pause in enumerate(pauses()):
            try:
                return settle(settlements)
            except Error as error:
                if not may_pass(error):
                    raise
                report(error, "commit", f"{len(settlements)} outcomes wait for the database", brief=tries > 0)
                connections.close_all()
                refusals += self._is_refusal(error, len(settlements))
                if self.gives_up.is_set() or refusals == limit:
                    raise
            self.gives_up.wait(pause)
        raise AssertionError("unreachable")

    def _is_refusal(self, error: Error, outcomes: int) -> bool:
        """Tell whether the database answers, and would not take these outcomes.

        One alone that took too long waits for whoever has locked its row; in a batch it keeps others waiting.
        """
        if is_contention(error) or (has_timed_out(error) and outcomes == 1):
            return False
        return answers()

    def _as_failure(self, outcome: Outcome, error: Exception) -> Report:
        """Record an outcome that cannot be written as a failed attempt."""
        delivery, settlement = outcome
        report(error, "commit", f"the outcome of work {settlement.row.id} cannot be written")
        try:
            return self._persistently([as_failure(settlement, error)])
        except Exception as again:
            report(again, "commit", f"work {settlement.row.id} is left to its lease")
            delivery.abort(AbortReason.ERROR)
            return Report()


def may_pass(error: Error) -> bool:
    """Tell whether the database may take the same outcome later: it is away, busy, or a read-only standby."""
    read_only = getattr(error.__cause__, "sqlstate", None) == READ_ONLY
    return isinstance(error, (OperationalError, InterfaceError)) or read_only


def answers() -> bool:
    """Tell whether the database answers at all."""
    try:
        return bool(fetch("SELECT 1", ()))
    except Exception:
        return False


def pauses() -> Iterator[float]:
    """Yield growing pauses, without end."""
    pause = FIRST_PAUSE
    while True:
        yield pause
        pause = min(pause * 2, LONGEST_PAUSE)
