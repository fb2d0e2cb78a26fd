"""From claimed works to slots and doers: single works at once, those of a batch type together."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from django_ayework.define.registry import AnyBatchType, registry
from django_ayework.doers import Doer, TellsRoom
from django_ayework.flow.events import report
from django_ayework.worker.allocation import doer_of
from django_ayework.worker.batch import Batch
from django_ayework.worker.delivery import Delivery, look_after
from django_ayework.worker.executor import Executor, Load, deliveries_in, without_outcome
from django_ayework.worker.in_flight import InFlight

# --- gathering batches ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Buffer:
    """Works of one type; ``due_at`` is when they run, however few they are."""

    size: int
    due_at: float
    deliveries: list[Delivery] = field(default_factory=list)


class Gathering:
    """The batches that are not full yet, one per type. For one thread; moments are those of ``tick``."""

    def __init__(self, tick: Callable[[], float] = time.monotonic) -> None:
        self._tick = tick
        self._buffers: dict[str, Buffer] = {}

    def add(self, delivery: Delivery, batch_type: AnyBatchType) -> Batch | None:
        """Let a work wait for others of its type; return its batch if that is full now."""
        type, now = delivery.row.type, self._tick()
        buffer = self._buffers.setdefault(type, Buffer(batch_type.size, now + batch_type.max_wait))
        buffer.deliveries.append(delivery)
        return self._take(type) if len(buffer.deliveries) >= buffer.size else None

    def is_empty(self, type: str) -> bool:
        """Tell whether no work of a type waits."""
        return type not in self._buffers

    def due(self) -> list[Batch]:
        """Take out the batches that have waited long enough."""
        now = self._tick()
        return [self._take(type) for type, buffer in list(self._buffers.items()) if buffer.due_at <= now]

    def all(self) -> list[Batch]:
        """Take out every batch."""
        return [self._take(type) for type in list(self._buffers)]

    def room(self) -> dict[str, int]:
        """Return how many more works the batches take, by type."""
        return {type: buffer.size - len(buffer.deliveries) for type, buffer in self._buffers.items()}

    def pause(self) -> float:
        """Return how many seconds are left until a batch is due; infinity when none waits."""
        due_at = min((buffer.due_at for buffer in self._buffers.values()), default=float("inf"))
        return max(0.0, due_at - self._tick())

    def _take(self, type: str) -> Batch:
        return Batch(self._buffers.pop(type).deliveries)


# --- doers ------------------------------------------------------------------------------------------------

#: How many works of one worker doers may hold, running and waiting; those that wait are kept from others.
MOST_HELD = 512
#: Seconds a work may have waited in a doer without being checked for a loss again before it runs.
DOERS_TRUSTED_FOR = 0.5


class DoerDispatcher:
    """Hands works to doers, for one worker, and tells how many more are welcome."""

    def __init__(self, in_flight: InFlight, executor: Executor) -> None:
        self._in_flight = in_flight
        self._executor = executor
        self._doers: list[Doer] = []
        self._unsubscribe: list[Callable[[], None]] = []

    def open(self, on_room: Callable[[], object]) -> None:
        """Call this function whenever a doer may have room for more, until ``close``."""
        in_use = {id(doer): doer for known in registry if (doer := doer_of(known.name)) is not None}
        self._doers = list(in_use.values())
        self._unsubscribe = [doer.on_room(on_room) for doer in self._doers if isinstance(doer, TellsRoom)]

    def close(self) -> None:
        """Unsubscribe."""
        for unsubscribe in self._unsubscribe:
            unsubscribe()

    def room(self, doer: Doer) -> int:
        """Return how many more works a doer may be given now; none while it cannot say."""
        try:
            welcome = doer.available()
        except BaseException as error:
            report(error, "queue", f"{doer!r} could not say how many works are welcome")
            return 0
        return max(0, min(welcome, MOST_HELD - self._in_flight.in_doers))

    def room_in_all(self) -> int:
        """Return how many more works all doers together may be given now."""
        return min(sum(map(self.room, self._doers)), MOST_HELD)

    def submit(self, load: Load, doer: Doer) -> None:
        """Hand over a load. If the doer refuses it, it counts as waiting for a slot, and so goes back."""
        deliveries = deliveries_in(load)
        row = deliveries[0].row
        try:
            doer.submit(partial(self._run, load), row.fairness or None, row.priority, row.queued_at)
        except BaseException as error:
            report(error, "queue", f"{doer!r} refused {load}, which goes back")
            for delivery in deliveries:
                delivery.ready_at = time.monotonic()
            if isinstance(load, Batch):
                self._in_flight.finish(in_doer=True)

    def _run(self, load: Load) -> None:
        """Run in this thread of a doer, unless the work was lost or cancelled while it waited."""
        look_after(deliveries_in(load), DOERS_TRUSTED_FOR)
        if isinstance(load, Delivery) and load.signal.aborted and load.start():
            self._executor.finished(load, without_outcome(load))
        else:
            self._executor.run_here(load)  # a batch leaves out what was lost


# --- dispatching ------------------------------------------------------------------------------------------

#: Seconds that works may have gathered without being checked for a loss again before they run.
TRUSTED_FOR = 0.05


class Dispatcher:
    """Hands claimed works to the slots, or to doers. For one thread.

    A batch counts as one from its first work on, so that a slot is left for it.
    """

    def __init__(self, in_flight: InFlight, executor: Executor, doer_dispatcher: DoerDispatcher) -> None:
        self._in_flight = in_flight
        self._executor = executor
        self._doer_dispatcher = doer_dispatcher
        self._gathering = Gathering()

    def hand_out(self, deliveries: list[Delivery]) -> None:
        """Take in claimed works, and start those that can start."""
        kinds = {type: (registry.batch(type), doer_of(type)) for type in {each.type for each in deliveries}}
        single = []
        for delivery in deliveries:
            batch_type, delivery.doer = kinds[delivery.type]
            delivery.in_batch = batch_type is not None
            if delivery.in_batch or delivery.doer is not None:
                delivery.ready_at = float("inf")  # it may wait for long, and is not given back for that
            else:
                single.append(delivery)
        self._in_flight.add(deliveries)
        self._executor.submit(single)
        if len(single) == len(deliveries):
            return
        for delivery in deliveries:
            batch_type, doer = kinds[delivery.type]
            if batch_type is not None:
                self._gather(delivery, batch_type)
            elif doer is not None:
                self._doer_dispatcher.submit(delivery, doer)

    def hand_out_due(self) -> None:
        """Start the batches whose first work has waited long enough."""
        for batch in self._gathering.due():
            self._submit(batch)

    def hand_out_rest(self) -> None:
        """Start batches there is a slot for, as nothing more is claimed; the others may be given back."""
        for batch in self._gathering.all():
            doer = batch.deliveries[0].doer
            if (self._executor.free if doer is None else self._doer_dispatcher.room(doer)) > 0:
                look_after(batch.deliveries, 0.0)
                batch.start()
                self._start(batch, doer)

    def room(self) -> dict[str, int]:
        """Return how many more works the gathering batches take, by type."""
        return self._gathering.room()

    def pause(self) -> float:
        """Return in how many seconds a gathering batch is due."""
        return self._gathering.pause()

    def _gather(self, delivery: Delivery, batch_type: AnyBatchType) -> None:
        """Let a work wait for others of its type, and start its batch if that is full now."""
        if self._gathering.is_empty(delivery.type):
            self._in_flight.begin_batch(delivery.doer is not None)
        batch = self._gathering.add(delivery, batch_type)
        if batch is not None:
            self._submit(batch)

    def _submit(self, batch: Batch) -> None:
        look_after(batch.deliveries, TRUSTED_FOR)
        doer = batch.deliveries[0].doer
        if doer is None:
            for delivery in batch.deliveries:
                delivery.ready_at = time.monotonic()
        self._start(batch, doer)

    def _start(self, batch: Batch, doer: Doer | None) -> None:
        if doer is None:
            self._executor.submit([batch])
        else:
            self._doer_dispatcher.submit(batch, doer)
