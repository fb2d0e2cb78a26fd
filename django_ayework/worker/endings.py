"""What becomes of works whose attempts have ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from django_ayework.flow.settle import Settlement
from django_ayework.worker.attempts.delivery import Delivery
from django_ayework.worker.batches.running import Ended
from django_ayework.worker.claiming.pressure import Pressure
from django_ayework.worker.holdings import Holdings
from django_ayework.worker.slots.loads import Load, runs_in_doer, was_given_back


class Endings:
    """Passes outcomes on to be settled, forgets what is settled, and lets others be claimed in its place."""

    def __init__(self, holdings: Holdings, pressure: Pressure, claim_again: Callable[[], None]) -> None:
        self._holdings = holdings
        self._pressure = pressure
        self._claim_again = claim_again
        #: Takes an outcome that is to be written.
        self.submit: Callable[[Delivery, Settlement], object] = lambda delivery, settlement: None
        #: Tells whether the end of works of these types lets others be claimed.
        self.make_room: Callable[[Iterable[str]], bool] = lambda types: False

    def finished(self, load: Load, outcomes: list[Ended]) -> None:
        """Pass outcomes on to be settled, unless the attempt has done so (slots and doers call this).

        Without an outcome a work is left to its lease.
        """
        for delivery, settlement in outcomes:
            delivery.ended = True
            if settlement is not None:
                self._pressure.count(settlement)
            if settlement is not None and not delivery.settled:
                self.submit(delivery, settlement)
            elif not delivery.withdrawn:
                self.settled([delivery])
        if not was_given_back(load):
            self._holdings.finish(runs_in_doer(load))

    def settled(self, deliveries: list[Delivery]) -> None:
        """Forget settled works; claim again if a limit has held others of their types back."""
        self._holdings.settle(deliveries)
        if self.make_room(delivery.row.type for delivery in deliveries):
            self._claim_again()
