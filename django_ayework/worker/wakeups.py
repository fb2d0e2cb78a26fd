"""Waking a worker: by commits of its own process, and by messages of other processes.

All workers of a fleet receive the same messages. A few claim at once; each other waits for its step, and
claims if no worker has answered by then.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence, Set
from functools import partial
from typing import NamedTuple

from django_ayework.conf import get_settings
from django_ayework.flow.notify import (
    Notification,
    call_later,
    due_works,
    receives_remote,
    sender,
    subscribe_answered,
    subscribe_due,
    subscribe_revoked,
)
from django_ayework.rules.controls import Scope
from django_ayework.rules.durations import later
from django_ayework.rules.notifications import MOST_NAMED, Due, Place, delay_of, number_of
from django_ayework.store.database import clock
from django_ayework.store.processes import live_processes
from django_ayework.worker.in_flight import Delivery

#: Seconds between two reads of the live workers, and since the last heartbeat of a live worker (they write
#: one every 10 s).
READ_EVERY, SEEN_WITHIN = 10.0, 25.0
#: Seconds between two steps in which the workers of a fleet claim what no other has taken.
STEP = 0.03
#: Poll intervals of this worker within which it polls in any case.
SOON = 4
#: Seconds after which a message is not answered any more: all others have polled.
TOO_LATE = 0.5


class Message(NamedTuple):
    """A message of another process about due works, which this worker may have to answer."""

    number: str
    due: Due  # as far as this worker serves it
    received_at: float
    answers: bool  # this worker is the first of those that claim in its step
    is_late: bool  # no worker answered in the steps before


class WakeUps:
    """Due works named by notifications, for which it wakes the worker, until the next claim takes them.

    It listens from when it opens until it closes. A worker that finds works in a late step claims at once
    from then on, until it finds nothing: the workers of the steps before are busy, gone, or serve
    other types.
    """

    def __init__(self, worker_id: str, scope: Scope, wake: threading.Event) -> None:
        #: The messages that the last claim has taken.
        self.taken: Sequence[Message] = ()
        self._worker_id = worker_id
        self._number = number_of(worker_id)
        self._scope = scope
        self._wake = wake
        self._lock = threading.Lock()
        self._due = Due()
        self._messages: deque[Message] = deque(maxlen=MOST_NAMED)
        #: Messages that wait for their steps, by number.
        self._waiting: dict[str, Message] = {}
        self._is_eager = False
        #: The number of each other live worker, and the queues that it serves (all, when empty). Until they
        #: have been read, a worker believes that it is alone.
        self._others: list[tuple[int, frozenset[str]]] = []
        self._read_at = float("-inf")
        self._unsubscribe: list[Callable[[], None]] = []

    def open(self, check_revoked: Callable[[frozenset[str] | None], object]) -> None:
        """Subscribe; ``check_revoked`` is called with the works that other processes revoke."""
        due_works.subscribe(self.add)
        self._unsubscribe = [
            subscribe_due(self._receive),
            subscribe_answered(self._drop),
            subscribe_revoked(check_revoked),
        ]

    def close(self) -> None:
        """Unsubscribe."""
        due_works.unsubscribe(self.add)
        for unsubscribe in self._unsubscribe:
            unsubscribe()

    def add(self, due: Due) -> None:
        """Note due works, and wake the worker if it serves any of them; any thread may call this."""
        self._note(self._served(due))

    def take(self) -> Due:
        """Return all that was added since the last time."""
        with self._lock:
            due, self._due = self._due, Due()
            self.taken = list(self._messages)
            self._messages.clear()
        return due

    def answer(self, claimed: Iterable[Delivery], left: Callable[[], Set[Place]]) -> None:
        """After a claim, answer the messages that it took into account, if others wait for that.

        The works of a message are taken when the claim found that many, or ``left`` nothing there.
        """
        if not self.taken:
            return
        pushed = get_settings().queues  # no message names their works
        found = [(each.row.queue, each.type) for each in claimed if each.row.queue not in pushed]
        number, places, rest, answered = len(found), set(found), left(), []
        for message in self.taken:
            named = message.due.places or frozenset()
            if message.is_late:
                self._is_eager = not named.isdisjoint(places)
            if named.isdisjoint(rest) or number >= message.due.works:
                number = max(0, number - message.due.works)
                is_awaited = time.monotonic() - message.received_at < TOO_LATE
                if is_awaited and (message.answers or (message.is_late and self._is_eager)):
                    answered.append(f"{message.number} {self._number}")
        if answered:
            sender.publish(Notification(answered=answered))

    def read_others(self) -> None:
        """Read which other workers are alive, if that was some seconds ago and messages are received."""
        now = time.monotonic()
        if now - self._read_at < READ_EVERY or not receives_remote():
            return
        self._read_at = now
        self._others = [
            (number_of(id), frozenset(filter(None, queues.split(","))))
            for id, queues in live_processes(later(clock.now(), -SEEN_WITHIN))
            if id != self._worker_id
        ]

    def _served(self, due: Due) -> Due:
        """Return what this worker serves of it; a start before which it polls by itself is left out."""
        if due.places is None:
            return due
        soon = clock.now().timestamp() + SOON * get_settings().poll_interval
        start = due.start if due.start is not None and due.start < soon else None
        return Due(frozenset(place for place in due.places if self._scope.serves(place)), start, due.works)

    def _note(self, served: Due, message: Message | None = None) -> None:
        """Note due works that this worker serves, and wake it if they are new."""
        with self._lock:
            before = self._due
            self._due = before | served
            if message is not None:
                self._messages.append(message)
            is_new = self._due != before
        if is_new:
            self._wake.set()

    def _receive(self, due: Due, text: str) -> None:
        """Wake the worker now or in its step, if it serves any works of another process's message."""
        served = self._served(due)
        if not served.places:  # a later start, or a reason to poll
            self._note(served)
            return
        number, queues = number_of(text), {queue for queue, _ in served.places}
        rivals = [rival for rival, serves in self._others if not serves or not serves.isdisjoint(queues)]
        delay = delay_of(number, self._number, rivals, served.works)
        is_late = delay.steps > 0
        message = Message(str(number), served, time.monotonic(), delay.answers, is_late)
        if is_late and not self._is_eager:
            self._waiting[message.number] = message
            call_later(delay.steps * STEP, partial(self._begin_step, message.number))
        else:
            self._note(served, message)

    def _begin_step(self, number: str) -> None:
        """Wake the worker for a message that no worker has answered."""
        if (message := self._waiting.pop(number, None)) is not None:
            self._note(message.due, message)

    def _drop(self, answers: frozenset[str]) -> None:
        """Forget messages that other live workers have answered.

        Another schema of the database, or another project on a Redis server, has the same channels. The
        workers there find none of these works.
        """
        known = {str(number) for number, _ in self._others}
        for answer in answers:
            message, _, worker = answer.partition(" ")
            if worker in known:
                self._waiting.pop(message, None)
