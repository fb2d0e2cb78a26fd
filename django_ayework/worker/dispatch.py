"""From claimed works to slots and doers: single works at once, those of a batch type together."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from django_ayework.conf import get_settings
from django_ayework.define.registry import AnyBatchType, registry
from django_ayework.doers import Doer, TellsRoom
from django_ayework.flow.events import report
from django_ayework.worker.delivery import Batch, Delivery, abort_lost_waiting
from django_ayework.worker.executor import Executor, Load, deliveries_in, without_outcome
from django_ayework.worker.in_flight import InFlight

# --- gathering ---
# Where works wait for their batch: until it is full, or its first work has waited long enough.


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
        fresh = Buffer(batch_type.size, now + batch_type.max_wait)
        buffer = self._buffers.setdefault(type, fresh)
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


# --- sizes ---
# How many works go into one slot: of a batch type as many as a batch has, else one.

#: Works of a type in one claim, unless a single batch is larger.
MOST_AT_ONCE = 1000
#: No batch gathers.
NO_ROOM: Mapping[str, int] = {}


def size_of(type: str) -> int:
    """Return how many works of a type one slot takes."""
    batch_type = registry.batch(type)
    return batch_type.size if batch_type else 1


def works_in(type: str, slots: int, room: Mapping[str, int]) -> int:
    """Return how many works of a type so many slots take.

    ``room`` is what the batch that gathers takes besides: it has its slot.
    """
    size = size_of(type)
    return min(slots * size, max(size, MOST_AT_ONCE)) + room.get(type, 0)


def slots_of(type: str, works: int, room: Mapping[str, int]) -> int:
    """Return how many slots so many works of a type take."""
    return -(-max(0, works - room.get(type, 0)) // size_of(type))


def slots_for(types: Iterable[str], room: Mapping[str, int]) -> int:
    """Return how many slots works of these types take."""
    return sum(slots_of(type, works, room) for type, works in Counter(types).items())


# --- sources ---
# What runs the works of a type: its own doer, the doer of the settings, or else the worker's slots.


def doer_of(type: str) -> Doer | None:
    """Return what runs the works of a type; None for slots, which run batches without a doer of their own."""
    work_type = registry.find(type)
    if work_type is None:
        return None
    doer: Doer | None = work_type.settings.doer
    return doer if registry.batch(type) else doer or get_settings().doer


def doers_in_use() -> list[Doer]:
    """Return the doers of all registered types, each once."""
    found = {id(doer): doer for work_type in registry if (doer := doer_of(work_type.name)) is not None}
    return list(found.values())


# --- doing ---
# Works that a doer runs, for one worker.

#: How many works of one worker doers may hold, running and waiting; those that wait are kept from others.
MOST_HELD = 512
#: Seconds a work may have waited in a doer without being looked at again before it runs.
DOERS_TRUSTED_FOR = 0.5


class DoerDispatcher:
    """Hands works to doers, for one worker, and tells how many more are welcome."""

    def __init__(self, in_flight: InFlight, executor: Executor) -> None:
        self._in_flight = in_flight
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
        return max(0, min(welcome, MOST_HELD - self._in_flight.in_doers))

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
                self._in_flight.finish(in_doer=True)

    def _do(self, load: Load) -> None:
        """Run in this thread of a doer, unless it was lost or cancelled while it waited."""
        abort_lost_waiting(deliveries_in(load), DOERS_TRUSTED_FOR)
        if isinstance(load, Delivery) and load.signal.aborted and load.start():
            self._executor.finished(load, without_outcome(load))
        else:
            self._executor.run_here(load)  # a batch leaves out what was lost


# --- dispatch ---
# From claims to slots: single works at once, those of a batch type together.

#: Seconds that works may have gathered without being looked at again before they run.
TRUSTED_FOR = 0.05


class Dispatch:
    """Hands claimed works to the slots, or to doers. For one thread.

    A batch counts as one from its first work on, so that a slot is left for it.
    """

    def __init__(
        self,
        in_flight: InFlight,
        executor: Executor,
        doer_dispatcher: DoerDispatcher,
        tick: Callable[[], float] = time.monotonic,
    ) -> None:
        self._in_flight = in_flight
        self._executor = executor
        self._doer_dispatcher = doer_dispatcher
        self._gathering = Gathering(tick)

    def hand_out(self, deliveries: list[Delivery]) -> None:
        """Take in claimed works, and start what can start."""
        kinds = {type: (registry.batch(type), doer_of(type)) for type in {each.type for each in deliveries}}
        for delivery in deliveries:
            batch_type, delivery.doer = kinds[delivery.type]
            delivery.in_batch = batch_type is not None
            if delivery.in_batch or delivery.doer is not None:
                delivery.ready_at = float("inf")  # it may wait for long, and is not given back for that
        self._in_flight.add(deliveries)
        self._executor.submit(each for each in deliveries if not each.in_batch and each.doer is None)
        for delivery in deliveries:
            batch_type, doer = kinds[delivery.type]
            if batch_type is not None:
                self._gather(delivery, batch_type)
            elif doer is not None:
                self._doer_dispatcher.submit(delivery, doer)

    def _gather(self, delivery: Delivery, batch_type: AnyBatchType) -> None:
        """Let a work wait for others of its type, and start its batch if that is full now."""
        if self._gathering.is_empty(delivery.type):
            self._in_flight.begin_batch(delivery.doer is not None)
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
            if (self._executor.free if doer is None else self._doer_dispatcher.room(doer)) > 0:
                abort_lost_waiting(batch.deliveries, 0.0)
                batch.start()
                self._start(batch, doer)

    def room(self) -> dict[str, int]:
        """Return how many more works the gathering batches take, by type."""
        return self._gathering.room()

    def pause(self) -> float:
        """Return in how many seconds a batch is due that gathers."""
        return self._gathering.pause()

    def _submit(self, batch: Batch) -> None:
        abort_lost_waiting(batch.deliveries, TRUSTED_FOR)
        doer = batch.deliveries[0].doer
        for delivery in batch.deliveries if doer is None else ():
            delivery.ready_at = time.monotonic()
        self._start(batch, doer)

    def _start(self, load: Load, doer: Doer | None) -> None:
        if doer is None:
            self._executor.submit([load])
        else:
            self._doer_dispatcher.submit(load, doer)
