"""Leases of the works that a worker holds: renewed while it holds them, given up by a release.

A released work is delivered again, elsewhere or later, and no attempt is spent.

A last attempt is noted in the database before its handler is called. The note is the number of the delivery.
Only the holder of the work can write it, and it is committed before the handler is called. So a last attempt
begins once, and a worker that is lost before uses none up. Other attempts are not noted, as that costs a
statement.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import NamedTuple

from django.db import Error, OperationalError

from django_ayework.conf import get_settings
from django_ayework.define.context import AbortReason
from django_ayework.flow.notify import publish_released
from django_ayework.heartbeat import Heartbeat
from django_ayework.store import leases, transitions
from django_ayework.store.connections import close_all_connections
from django_ayework.store.database import is_contention
from django_ayework.worker.in_flight import (
    Batch,
    Delivery,
    InFlight,
    abort_lost,
    deliveries_by_id,
    losses_of,
    warn_if_late,
)
from django_ayework.worker.threads import EngineThread, LoopThread, Recovery

#: Seconds between two turns of the thread that renews leases.
TICK = 0.25
#: Seconds between two tries to reach a database that is away; less when leases are short.
LONGEST_PAUSE = 5.0
#: Seconds without a work after which the connection is closed.
IDLE = 5.0
#: Seconds for which the note of a last attempt waits for a locked row, and between two tries.
LOCKED_FOR, PAUSE = 0.75, 0.05


def recovery_within_lease() -> Recovery:
    """Return pauses short enough that a lease outlives several of them."""
    return Recovery(TICK, min(LONGEST_PAUSE, get_settings().lease / 6))


class LeaseThread(LoopThread):
    """Renews leases that are a third used, so that short works are never renewed.

    A row that another transaction has locked is passed over, and tried again at the next tick: a work stays
    with this worker as long as no other has taken it. No code of the project runs here.
    """

    failure = "the leases could not be renewed"

    def __init__(self, worker_id: str, in_flight: InFlight) -> None:
        super().__init__("leases", recovery_within_lease())
        self.worker_id = worker_id
        self.in_flight = in_flight
        self._held_at = time.monotonic()

    def turn(self) -> float:
        """Renew the leases that are due, those of equal length together."""
        now = time.monotonic()
        held = self.in_flight.all()
        due = [delivery for delivery in held if now - delivery.renewed_at > delivery.lease / 3]
        for lease in {delivery.lease for delivery in due}:
            self._renew([delivery for delivery in due if delivery.lease == lease], lease, now)
        if held:
            self._held_at = now
        elif now - self._held_at > IDLE:
            close_all_connections()
        return TICK

    def _renew(self, due: list[Delivery], lease: float, now: float) -> None:
        """Renew leases of one length; abort attempts whose leases have lapsed because that fails.

        A work that waits is kept: it is ours until another worker takes it.
        """
        try:
            renewed = leases.renew(deliveries_by_id(due), self.worker_id, lease)
        except Exception as error:
            if not (isinstance(error, Error) and is_contention(error)):
                for delivery in due:
                    if delivery.started_at is not None and delivery.has_lapsed(now):
                        delivery.abort(AbortReason.ERROR)
            raise
        for delivery in due:
            if delivery.row.id in renewed:
                warn_if_late(delivery, "renewed")
                delivery.renew(now)
        abort_lost([delivery for delivery in due if delivery.row.id not in renewed])


def release(deliveries: Sequence[Delivery], worker_id: str) -> list[Delivery]:
    """Release works; return those that this worker still holds, as other transactions have locked their rows.

    Works that are not ours any more are left alone.
    """
    released = transitions.release(deliveries_by_id(deliveries), worker_id, skip_locked=True)
    publish_released(delivery.row for delivery in deliveries if delivery.row.id in released)
    others = [delivery for delivery in deliveries if delivery.row.id not in released]
    return [delivery for delivery, loss in losses_of(others) if loss is None]


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
                close_all_connections()

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
        close_all_connections()
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
