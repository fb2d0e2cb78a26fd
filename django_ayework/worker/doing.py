"""Works that a doer runs, for one worker."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from django_ayework.doers import Doer, TellsRoom
from django_ayework.flow.events import report
from django_ayework.worker.delivery import Delivery
from django_ayework.worker.holdings import Holdings
from django_ayework.worker.loads import without_outcome
from django_ayework.worker.slots import Slots
from django_ayework.worker.sources import doers_in_use

#: How many works of one worker doers may hold, running and waiting; those that wait are kept from others.
MOST_HELD = 512
#: Seconds a work may have waited in a doer without being looked at again before it runs.
TRUSTED_FOR = 0.5


class Doing:
    """Hands works to doers, for one worker, and tells how many more are welcome."""

    def __init__(
        self, holdings: Holdings, slots: Slots, tell_losses: Callable[[list[Delivery]], object]
    ) -> None:
        self._holdings = holdings
        self._slots = slots
        self._tell_losses = tell_losses
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
        except Exception as error:
            report(error, "queue", f"{doer!r} could not say how many works are welcome")
            return 0
        return max(0, min(welcome, MOST_HELD - self._holdings.in_doers))

    def room_in_all(self) -> int:
        """Return how many more works all doers together may be given now."""
        return min(sum(map(self.room, self._doers)), MOST_HELD)

    def submit(self, delivery: Delivery, doer: Doer) -> None:
        """Hand a work over. It may wait there for long, so it is not given back for that.

        One that the doer refuses is: it counts as one that waits for a slot.
        """
        row = delivery.row
        try:
            doer.submit(partial(self._do, delivery), row.fairness or None, row.priority, row.queued_at)
            delivery.ready_at = float("inf")
        except Exception as error:
            report(error, "queue", f"{doer!r} refused {delivery}, which goes back")

    def _do(self, delivery: Delivery) -> None:
        """Run a work in this thread of a doer, unless it was lost or cancelled while it waited."""
        self._look_after(delivery)
        if delivery.signal.aborted and delivery.start():
            self._slots.finished(delivery, without_outcome(delivery))
        else:
            self._slots.run_here(delivery)

    def _look_after(self, delivery: Delivery) -> None:
        """See whether a work that has waited is still ours to run."""
        if time.monotonic() - delivery.claimed_at > TRUSTED_FOR:
            try:
                self._tell_losses([delivery])
            except Exception as error:  # the outcome of such a work is refused anyway
                report(error, "queue", f"{delivery} could not be looked at before it runs")
