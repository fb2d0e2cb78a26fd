"""Ids that are delivered to one worker, from the Queue to the claim of their works.

The database is the truth. So an id that may not be claimed now, or not any more, is dropped, and a poll tells
which works should have arrived: their lanes are claimed from the table until they are empty.
"""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime

from django_ayework.conf import get_settings
from django_ayework.define.types import registry
from django_ayework.flow.hooks import report
from django_ayework.flow.sending import is_limited, may_be_pushed
from django_ayework.ports.queue import PoppedId, Queue, get_queue
from django_ayework.rules.controls import Controls, Scope
from django_ayework.rules.durations import later
from django_ayework.store import claims
from django_ayework.store.database import clock
from django_ayework.store.lanes import Lane, as_moment, heads_of
from django_ayework.store.rows import WorkRow
from django_ayework.worker.threads import LoopThread, Recovery

#: Seconds for which a thread waits for ids at a time, as nothing can interrupt it.
WAIT = 0.5
#: Seconds until a Queue that failed is asked again, growing up to LONGEST_PAUSE.
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
#: Seconds between two acknowledgements while ids keep arriving.
ACKNOWLEDGE_EVERY = 0.1
#: Works of a lane among which a poll looks for one that did not arrive.
LOOKED_AT = 100


class DeliveryThread(LoopThread):
    """Pops the ids of some queues from one Queue, as many as were asked for, and wakes the claiming thread.

    The claiming thread hands back what it has done with them, and waits for no answer of the Queue.
    """

    def __init__(self, queue: Queue, names: Sequence[str], on_arrival: Callable[[], object]) -> None:
        super().__init__("delivery", Recovery(FIRST_PAUSE, LONGEST_PAUSE))
        self.names = names
        #: Whether the Queue failed when it was last asked, so that nothing arrives.
        self.is_away = False
        #: By queue, the moment from which the latest id that has arrived is, or at which there was none.
        self.arrived_until: dict[str, datetime] = {}
        self._queue = queue
        self._on_arrival = on_arrival
        self._tries = Recovery(FIRST_PAUSE, LONGEST_PAUSE)
        self._lock = threading.Lock()
        self._asked = 0
        self._acknowledge_at = 0.0
        #: Whether the Queue failed when it was last to take ids back.
        self._is_refusing = False
        self._arrived: list[PoppedId] = []
        self._done: list[PoppedId] = []
        self._surplus: list[PoppedId] = []

    def ask(self, number: int) -> None:
        """Ask for so many ids in all, instead of what was asked for before."""
        with self._lock:
            begins = (number > 0 and self._asked == 0) or self._done or self._surplus
            self._asked = number
        if begins and not self.is_away:
            self.wake.set()

    def take(self) -> list[PoppedId]:
        """Return the ids that have arrived."""
        with self._lock:
            arrived, self._arrived = self._arrived, []
            return arrived

    def give_back(self, done: Iterable[PoppedId], surplus: Iterable[PoppedId]) -> None:
        """Acknowledge ids, and let others pop the surplus, when the next ids are asked for."""
        with self._lock:
            self._done += done
            self._surplus += surplus

    def turn(self) -> float:
        """Exchange ids with the Queue; return how long there is nothing to exchange."""
        try:
            pause = self._exchange()
        except BaseException as error:
            if not self.is_away:
                report(error, "queue", "ids are not delivered, so the worker claims from the table")
            self.is_away = True
            self._on_arrival()
            return self._tries.fail()
        if self.is_away and not self._asked and not self._arrived:  # nothing says whether it is back
            return LONGEST_PAUSE
        self._tries.succeed()
        self.is_away = False
        return pause

    def stop(self) -> None:
        """End the thread, and let others pop what has arrived."""
        super().stop()
        if self.was_started and not self.is_away:
            self.give_back((), self.take())
            self._asked = 0
            self.turn()

    def _exchange(self) -> float:
        """Let others pop the surplus, pop what was asked for, then acknowledge what is done.

        Slots may be waiting for new ids. A pop may wait for ids, and no surplus may wait for that. While ids
        keep arriving, those of several pops are acknowledged together.
        """
        with self._lock:
            surplus, self._surplus = self._surplus, []
            asked = self._asked
        if surplus:
            self._hand_back(self._queue.put_back, surplus)
        popped = self._pop(asked) if asked else []
        now = time.monotonic()
        if not popped or now >= self._acknowledge_at:
            with self._lock:
                done, self._done = self._done, []
            self._acknowledge_at = now + ACKNOWLEDGE_EVERY
            if done:
                self._hand_back(self._queue.ack, done)
        return math.inf if popped or not asked else 0.0

    def _hand_back(self, take: Callable[[list[PoppedId]], object], ids: list[PoppedId]) -> None:
        """Let the Queue take ids back. If it cannot, they lapse there; what it gives still counts."""
        was_refusing, self._is_refusing = self._is_refusing, True
        try:
            take(ids)
        except BaseException as error:
            if not was_refusing:
                report(error, "queue", "ids are not acknowledged, so they are delivered again")
        else:
            self._is_refusing = False

    def _pop(self, number: int) -> list[PoppedId]:
        """Pop ids for the claiming thread; note what has arrived by now."""
        popped = self._queue.pop(self.names, number, WAIT)
        empty = {*self.names}.difference(each.queue for each in popped)
        self.arrived_until.update(dict.fromkeys(empty, clock.now()))
        if popped:
            with self._lock:
                self._arrived += popped
                self._asked = 0
            self._on_arrival()
        return popped


class Arrivals:
    """The delivered queues of a worker: their receivers, and claims of the works whose ids have arrived."""

    def __init__(self, names: Iterable[str], on_arrival: Callable[[], object]) -> None:
        by_queue = defaultdict[int, list[str]](list)
        queues = {name: get_queue(name) for name in names}
        for name, queue in queues.items():
            by_queue[id(queue)].append(name)
        self.receivers = [DeliveryThread(queues[some[0]], some, on_arrival) for some in by_queue.values()]
        self._receiver_of = {name: one for one in self.receivers for name in one.names}
        #: The types whose works are claimed by their ids, of which registry and which controls.
        self._types: tuple[int, Controls | None, frozenset[str]] = (-1, None, frozenset())

    def start(self) -> None:
        """Start the receivers."""
        for receiver in self.receivers:
            receiver.start()

    def stop(self) -> None:
        """Stop the receivers; ids that have arrived go back."""
        for receiver in self.receivers:
            receiver.request_stop()
        for receiver in self.receivers:
            receiver.stop()

    def ask(self, number: int) -> None:
        """Ask for the ids of so many works; for none, let others pop what has arrived meanwhile."""
        for receiver in self.receivers:
            if number <= 0:
                receiver.give_back((), receiver.take())
            receiver.ask(-(-number // len(self.receivers)))

    def claim(self, wanted: int, worker: str, controls: Controls) -> Iterator[list[WorkRow]]:
        """Lease up to ``wanted`` works whose ids have arrived, in their order, and drop these ids.

        More ids than that go back. An id is dropped whether or not its work could be claimed: the lease in
        the database protects the work from here on, and a poll finds those that could not be claimed. Yields
        the works of each Queue, so that none is lost if the claim of the next ones fails.
        """
        for receiver in self.receivers:
            if arrived := receiver.take():
                rows = self._claim_arrived(receiver, arrived, max(0, wanted), worker, controls)
                wanted -= len(rows)
                yield rows

    def _claim_arrived(
        self, receiver: DeliveryThread, arrived: list[PoppedId], wanted: int, worker: str, controls: Controls
    ) -> list[WorkRow]:
        """Lease the first works, and give all ids back; note from when the works are."""
        try:
            rows = self._lease(arrived[:wanted], worker, controls)
        except BaseException:
            receiver.give_back((), arrived)
            raise
        receiver.give_back(arrived[:wanted], arrived[wanted:])
        for name in receiver.names:
            moments = [row.run_at for row in rows if row.queue == name]
            if moments:
                receiver.arrived_until[name] = max(receiver.arrived_until.get(name, moments[0]), *moments)
        return rows

    def without_pushed(self, lanes: Iterable[Lane], controls: Controls) -> list[Lane]:
        """Return the lanes that are claimed from the table now.

        These are the lanes that are not delivered, those of a Queue that is away, and those with works that
        should have arrived.
        """
        pushed = defaultdict[str, list[str]](list)
        others: list[Lane] = []
        for lane in lanes:
            receiver = self._receiver_of.get(lane.queue)
            if receiver is None or receiver.is_away or lane.type not in self._claimable(controls):
                others.append(lane)
            else:
                pushed[lane.queue].append(lane.type)
        return others + [lane for each in pushed.items() for lane in self._overdue(*each)]

    def _overdue(self, queue: str, types: Sequence[str]) -> Iterator[Lane]:
        """Yield the lanes of a queue with works that are due for longer than ids take, but did not arrive."""
        arrived_until = self._receiver_of[queue].arrived_until.get(queue)
        if arrived_until is None:
            return
        limit = later(arrived_until, -get_settings().poll_interval)
        heads = heads_of(queue, dict.fromkeys(types, LOOKED_AT))
        for type in {head.type for head in heads if (as_moment(head.run_at) or limit) < limit}:
            yield Lane(queue, type)

    def _lease(self, arrived: Sequence[PoppedId], worker: str, controls: Controls) -> list[WorkRow]:
        """Lease the works of these ids that may run now. Databases refuse texts with NUL; no id is one."""
        order = {each.id: position for position, each in enumerate(arrived) if each.id.isprintable()}
        queues = [name for name in {each.queue for each in arrived} if name not in controls.paused_queues]
        types = sorted(self._claimable(controls))
        if not queues or not types:
            return []
        rows = claims.claim_delivered(list(order), queues, types, claims.new_lease(worker))
        return sorted(rows, key=lambda row: order[row.id])

    def _claimable(self, controls: Controls) -> frozenset[str]:
        """Return the types whose works are claimed by their ids now."""
        known, of, types = self._types
        if known != registry.version or of is not controls:
            served = {type: controls.of(type) for type in registry.names() if may_be_pushed(type)}
            types = frozenset(
                type for type, control in served.items() if not (control.paused or is_limited(control))
            )
            self._types = registry.version, controls, types
        return types


def arrivals_for(scope: Scope, on_arrival: Callable[[], object]) -> Arrivals | None:
    """Return the arrivals of a worker; None if no id is for it.

    A worker of some types takes no ids: it would take those of other types from the workers that run them.
    """
    names = [name for name in get_settings().queues if scope.serves_queue(name)]
    return Arrivals(names, on_arrival) if names and not (scope.types or scope.exclude_types) else None
