"""From claims to slots: single works at once, those of a batch type together."""

from __future__ import annotations

import time
from collections.abc import Callable

from django_ayework.define.registry import AnyBatchType, registry
from django_ayework.doers import Doer
from django_ayework.worker.attempts.delivery import Delivery
from django_ayework.worker.attempts.losses import look_after
from django_ayework.worker.batches.batch import Batch
from django_ayework.worker.batches.gathering import Gathering
from django_ayework.worker.doing import Doing
from django_ayework.worker.executor import Executor
from django_ayework.worker.holdings import Holdings
from django_ayework.worker.slots.loads import Load
from django_ayework.worker.sources import doer_of

#: Seconds that works may have gathered without being looked at again before they run.
TRUSTED_FOR = 0.05


class Dispatch:
    """Hands claimed works to the slots, or to doers. For one thread.

    A batch counts as one from its first work on, so that a slot is left for it.
    """

    def __init__(
        self,
        holdings: Holdings,
        executor: Executor,
        doing: Doing,
        tick: Callable[[], float] = time.monotonic,
    ) -> None:
        self._holdings = holdings
        self._executor = executor
        self._doing = doing
        self._gathering = Gathering(tick)

    def hand_out(self, deliveries: list[Delivery]) -> None:
        """Take in claimed works, and start what can start."""
        kinds = {type: (registry.batch(type), doer_of(type)) for type in {each.type for each in deliveries}}
        for delivery in deliveries:
            batch_type, delivery.doer = kinds[delivery.type]
            delivery.in_batch = batch_type is not None
            if delivery.in_batch or delivery.doer is not None:
                delivery.ready_at = float("inf")  # it may wait for long, and is not given back for that
        self._holdings.add(deliveries)
        self._executor.submit(each for each in deliveries if not each.in_batch and each.doer is None)
        for delivery in deliveries:
            batch_type, doer = kinds[delivery.type]
            if batch_type is not None:
                self._gather(delivery, batch_type)
            elif doer is not None:
                self._doing.submit(delivery, doer)

    def _gather(self, delivery: Delivery, batch_type: AnyBatchType) -> None:
        """Let a work wait for others of its type, and start its batch if that is full now."""
        if self._gathering.is_empty(delivery.type):
            self._holdings.begin_batch(delivery.doer is not None)
        batch = self._gathering.add(delivery, batch_type)
        if batch is not None:
            self._submit(batch)

    def hand_out_due(self) -> None:
        """Start the batches whose first work has waited long enough."""
        for batch in self._gathering.due():
            self._submit(batch)

    def hand_out_rest(self) -> None:
        """Start batches there is a place for, as nothing more is claimed; the others may be given back."""
        for batch in self._gathering.all():
            doer = batch.deliveries[0].doer
            if (self._executor.free if doer is None else self._doing.room(doer)) > 0:
                look_after(batch.deliveries, 0.0)
                batch.start()
                self._start(batch, doer)

    def room(self) -> dict[str, int]:
        """Return how many more works the gathering batches take, by type."""
        return self._gathering.room()

    def pause(self) -> float:
        """Return in how many seconds a batch is due that gathers."""
        return self._gathering.pause()

    def _submit(self, batch: Batch) -> None:
        look_after(batch.deliveries, TRUSTED_FOR)
        doer = batch.deliveries[0].doer
        for delivery in batch.deliveries if doer is None else ():
            delivery.ready_at = time.monotonic()
        self._start(batch, doer)

    def _start(self, load: Load, doer: Doer | None) -> None:
        if doer is None:
            self._executor.submit([load])
        else:
            self._doing.submit(load, doer)
