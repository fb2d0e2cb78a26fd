"""Works that a doer runs, for one worker."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from django_ayework.doers import Doer, TellsRoom
from django_ayework.flow.events import report
from django_ayework.worker.attempts.delivery import Delivery
from django_ayework.worker.attempts.losses import look_after
from django_ayework.worker.batches.batch import Batch
from django_ayework.worker.executor import Executor
from django_ayework.worker.holdings import Holdings
from django_ayework.worker.slots.loads import Load, deliveries_in, without_outcome
from django_ayework.worker.sources import doers_in_use

#: How many works of one worker doers may hold, running and waiting; those that wait are kept from others.
MOST_HELD = 512
#: Seconds a work may have waited in a doer without being looked at again before it runs.
TRUSTED_FOR = 0.5


class Doing:
    """Hands works to doers, for one worker, and tells how many more are welcome."""

    def __init__(self, holdings: Holdings, executor: Executor) -> None:
        self._holdings = holdings
        self._executor = executor
        self._doers: list[Doer] = []
        self._forget: list[Callable[[], None]] = []

    def open(self, on_room: Callable[[], object]) -> None:
        """Call this function whenever a doer may have room for more, until ``close``."""
        self._doers = doers_in_use()
        self._forget = [doer.on_room(on_room) for doer in self._doers if isinstance(doer, TellsRoom)]

    def close(self) -> None:
        """Listen no more."""
        for forget in self._forget:
            forget()

    def room(self, doer: Doer) -> int:
        """Return how many more works a doer may be given now; none while it cannot say."""
        try:
            welcome = doer.available()
        except BaseException as error:
            report(error, "queue", f"{doer!r} could not say how many works are welcome")
            return 0
        return max(0, min(welcome, MOST_HELD - self._holdings.in_doers))

    def room_in_all(self) -> int:
        """Return how many more works all doers together may be given now."""
        return min(sum(map(self.room, self._doers)), MOST_HELD)

    def submit(self, load: Load, doer: Doer) -> None:
        """Hand a work or a batch over. What the doer refuses counts as waiting for a slot: it goes back."""
        deliveries = deliveries_in(load)
        row = deliveries[0].row
        try:
            doer.submit(partial(self._do, load), row.fairness or None, row.priority, row.queued_at)
        except BaseException as error:
            report(error, "queue", f"{doer!r} refused {load}, which goes back")
            for delivery in deliveries:
                delivery.ready_at = time.monotonic()
            if isinstance(load, Batch):
                self._holdings.finish(in_doer=True)

    def _do(self, load: Load) -> None:
        """Run in this thread of a doer, unless it was lost or cancelled while it waited."""
        look_after(deliveries_in(load), TRUSTED_FOR)
        if isinstance(load, Delivery) and load.signal.aborted and load.start():
            self._executor.finished(load, without_outcome(load))
        else:
            self._executor.run_here(load)  # a batch leaves out what was lost
