"""The beginning of last attempts: each is noted in the database before its handler is called.

The note is the number of the delivery. Only the holder of the work can write it, and it is committed before
the handler is called. So a last attempt begins once, and a worker that is lost before uses none up. Other
attempts are not noted, as that costs a statement.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import suppress
from typing import NamedTuple

from django.db import OperationalError, connections

from django_ayework.define.context import AbortReason
from django_ayework.heartbeat import Heartbeat
from django_ayework.store import transitions
from django_ayework.worker.in_flight import Batch, Delivery, deliveries_by_id, losses_of
from django_ayework.worker.threads import EngineThread

#: Seconds to wait for a row that another transaction holds, and between two tries.
LOCKED_FOR, PAUSE = 0.75, 0.05
#: Seconds without a work after which the connection is closed.
IDLE = 5.0


class Waiting(NamedTuple):
    """Works of one load that wait to begin, together and until a moment of ``time.monotonic()``.

    ``begun`` will have None once all of them may run that are still ours, else why they cannot begin.
    """

    deliveries: list[Delivery]
    begun: Future[BaseException | None]
    until: float


class Beginning(EngineThread):
    """Notes last attempts for all slots, doers and the event loop: those that wait together by one statement.

    Their threads need no session for it, and wait no longer than a statement of the engine may take.
    """

    def __init__(self) -> None:
        super().__init__("beginning", self._note_all)
        self._inbox: queue.SimpleQueue[Waiting | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._is_over = False

    def begin(self, load: Delivery | Batch) -> Future[BaseException | None] | None:
        """Begin to note the last attempts of a load; None if it has none. The thread starts with the first.

        Works that are not ours any more are marked as lost. Others are not withdrawn from now on: a work that
        was noted and then not run would die of that, if it could not be released.
        """
        deliveries = [each for each in load.deliveries if each.is_last_attempt and each.keep()]
        if not deliveries:
            return None
        begun: Future[BaseException | None] = Future()
        begun.set_running_or_notify_cancel()  # who awaits it may be cancelled, and await it again
        try:
            with self._lock:
                if self._is_over:
                    raise RuntimeError("the worker has ended")
                if not self.was_started:
                    self.start()
                self._inbox.put(Waiting(deliveries, begun, time.monotonic() + LOCKED_FOR))
        except RuntimeError as error:  # it is also that of a thread which the system refuses
            begun.set_result(error)
        return begun

    def request_stop(self) -> None:
        """Let the thread end, and nothing begin any more; return at once."""
        with self._lock:
            self._is_over = True
            self._inbox.put(None)

    def _note_all(self, heartbeat: Heartbeat) -> None:
        """Note what waits, again and again."""
        waiting: list[Waiting] = []
        while True:
            heartbeat.beat(rest=IDLE)
            arrived = self._arrived(PAUSE if waiting else IDLE)
            heartbeat.beat()
            waiting += [each for each in arrived if each is not None]
            if None in arrived:
                for each in waiting:
                    each.begun.set_result(RuntimeError("the worker has ended"))
                return
            if waiting:
                waiting = note(waiting)
            else:
                connections.close_all()

    def _arrived(self, timeout: float) -> list[Waiting | None]:
        """Return what has arrived; wait until anything has."""
        arrived: list[Waiting | None] = []
        with suppress(queue.Empty):
            arrived.append(self._inbox.get(timeout=timeout))
            while True:
                arrived.append(self._inbox.get_nowait())
        return arrived


def note(waiting: list[Waiting]) -> list[Waiting]:
    """Note that all of these begin, and tell; return those that wait on, as a row of theirs is locked."""
    try:
        locked = note_deliveries(delivery for each in waiting for delivery in each.deliveries)
    except BaseException as error:
        for each in waiting:
            each.begun.set_result(error)
        connections.close_all()  # after all were told: it may fail, too
        return []
    left: list[Waiting] = []
    for each in waiting:
        if locked.isdisjoint(delivery.row.id for delivery in each.deliveries):
            each.begun.set_result(None)
        elif time.monotonic() < each.until:
            left.append(each)
        else:
            each.begun.set_result(OperationalError("the row of the work is locked by another transaction"))
    return left


def note_deliveries(deliveries: Iterable[Delivery]) -> set[str]:
    """Note that these attempts begin, all of one worker's; return the ids of works whose rows are locked.

    Works that are not ours any more are marked as lost. So are earlier deliveries of a work that was lost and
    then claimed again.
    """
    waiting: dict[str, Delivery] = {}
    for delivery in sorted(deliveries, key=lambda each: each.row.delivery):
        earlier = waiting.setdefault(delivery.row.id, delivery)
        if earlier is not delivery:
            earlier.lost = AbortReason.TAKEN_BY_ANOTHER_WORKER
            waiting[delivery.row.id] = delivery
    if not waiting:
        return set()
    [worker] = {delivery.row.worker for delivery in waiting.values()}
    begun = transitions.begin(deliveries_by_id(waiting.values()), worker)
    others = losses_of([delivery for id, delivery in waiting.items() if id not in begun])
    for delivery, loss in others:
        delivery.lost = loss
    return {delivery.row.id for delivery, loss in others if loss is None}
