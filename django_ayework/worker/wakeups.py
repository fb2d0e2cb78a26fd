"""Waking a worker: by commits of its own process, and by messages of other processes.

All workers of a fleet receive the same messages. A few claim at once; each other waits for its step, and
claims if no worker has answered by then.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from functools import partial
from typing import NamedTuple

from django_ayework.conf import get_settings
from django_ayework.flow.notify import (
    add_due_listener,
    call_later,
    hears_others,
    remove_due_listener,
    sender,
    subscribe_answered,
    subscribe_due,
    subscribe_revoked,
)
from django_ayework.rules.controls import Scope
from django_ayework.rules.durations import later
from django_ayework.rules.notifications import MOST_NAMED, Delay, Due, Place, delay_of, number_of
from django_ayework.store.attempts import living
from django_ayework.store.clock import clock
from django_ayework.worker.delivery import Delivery
from django_ayework.worker.threads import WakeEvent

#: Seconds between two readings of which workers are alive, and within which they were seen (they write every
#: 10 s).
READ_EVERY, SEEN_WITHIN = 10.0, 25.0
#: Seconds between two steps in which the workers of a fleet claim what no other has taken.
STEP = 0.03
#: Poll intervals of this worker within which it polls in any case.
SOON = 4
#: Seconds after which a message is not answered any more: all others have polled.
TOO_LATE = 0.5


class Member(NamedTuple):
    """Another worker: its number, and the queues that it serves (all, when empty)."""

    number: int
    queues: frozenset[str]


class Fleet:
    """The other workers that are alive. Until they have been read, a worker believes that it is alone."""

    def __init__(self, worker_id: str) -> None:
        self._worker_id = worker_id
        self._own = number_of(worker_id)
        self._others: tuple[Member, ...] = ()
        self._read_at = float("-inf")

    def refresh(self) -> None:
        """Read which workers are alive, if that was some seconds ago and messages are received at all."""
        now = time.monotonic()
        if now - self._read_at < READ_EVERY or not hears_others():
            return
        self._read_at = now
        self._others = tuple(
            Member(number_of(id), frozenset(filter(None, queues.split(","))))
            for id, queues in living(later(clock.now(), -SEEN_WITHIN))
            if id != self._worker_id
        )

    def delay(self, message: int, queues: Collection[str], works: int) -> Delay:
        """Return this worker's delay among those that serve any of these queues."""
        others = [m.number for m in self._others if not m.queues or not m.queues.isdisjoint(queues)]
        return delay_of(message, self._own, others, works)


class Message(NamedTuple):
    """A message of another process about due works, which this worker may have to answer."""

    number: int
    due: Due  # as far as this worker serves it
    received_at: float
    answers: bool  # this worker is the first of those that claim in its step
    is_late: bool  # no worker answered in the steps before


class DueInbox:
    """Due works that a worker was told of, until its next claim takes them. Any thread may add to it."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._lock = threading.Lock()
        self._due = Due()
        #: The last argument of :meth:`served`, and its result.
        self._known = (self._due, self._due)
        self._messages: deque[Message] = deque(maxlen=MOST_NAMED)
        #: The messages that the last claim has taken.
        self.taken: Sequence[Message] = ()

    def add(self, due: Due, message: Message | None = None) -> bool:
        """Note due works; return whether that is new, and this worker serves any of it."""
        served = self.served(due)
        with self._lock:
            before = self._due
            self._due = before | served
            if message is not None:
                self._messages.append(message)
            return self._due != before

    def take(self) -> Due:
        """Return all that was added since the last time."""
        self.taken = ()
        if not self._due:
            return self._due
        with self._lock:
            due, self._due = self._due, Due()
            if self._messages:
                self.taken = list(self._messages)
                self._messages.clear()
            return due

    def served(self, due: Due) -> Due:
        """Return what this worker serves of it; at rest the same comes again and again."""
        known, served = self._known
        if known is not due:
            served = due
            if due.places is not None:
                places = frozenset(place for place in due.places if self._scope.serves(place))
                start = due.start if due.start is not None and is_soon(due.start) else None
                served = Due(places, start, due.works)
            self._known = due, served
        return served


def is_soon(start: float) -> bool:
    """Tell whether this worker might not poll by itself before so many seconds since 1970."""
    return start - clock.now().timestamp() < SOON * get_settings().poll_interval


class WakeUps:
    """Wakes a worker for due works and for revoked ones, from when it opens until it closes.

    A worker that finds works in a late step claims at once from then on, until it finds nothing: the workers
    of the steps before are busy, gone, or serve other types.
    """

    def __init__(
        self,
        inbox: DueInbox,
        fleet: Fleet,
        wake: WakeEvent,
        check_revoked: Callable[[frozenset[str] | None], object],
    ) -> None:
        self._inbox = inbox
        self._fleet = fleet
        self._wake = wake
        self._check_revoked = check_revoked
        self._unsubscribe: list[Callable[[], None]] = []
        self._is_eager = False
        #: Messages that wait for their steps, by number.
        self._waiting: dict[str, Message] = {}

    def open(self) -> None:
        """Subscribe."""
        add_due_listener(self._receive)
        self._unsubscribe = [
            subscribe_due(self._receive_message),
            subscribe_answered(self._drop),
            subscribe_revoked(self._check_revoked),
        ]

    def close(self) -> None:
        """Unsubscribe."""
        remove_due_listener(self._receive)
        for unsubscribe in self._unsubscribe:
            unsubscribe()

    def answer(self, claimed: Iterable[Delivery], left: Callable[[], Set[Place]]) -> None:
        """After a claim, answer the messages that it took into account, if others wait for that.

        The works of a message are taken when the claim found that many, or ``left`` nothing there.
        """
        if not self._inbox.taken:
            return
        found = [(delivery.row.queue, delivery.type) for delivery in claimed]
        answered = [
            str(each.number) for each in self._taken_by_claim(found, left()) if self._may_answer(each)
        ]
        if answered:
            sender.answer(answered)

    def _receive(self, due: Due, message: Message | None = None) -> None:
        """Wake the worker if it serves any of the due works."""
        if self._inbox.add(due, message):
            self._wake.set()

    def _receive_message(self, due: Due, text: str) -> None:
        """Wake the worker now or in its step, if it serves any works of another process's message."""
        served = self._inbox.served(due)
        if not served.places:  # a later start, or a reason to poll
            self._receive(served)
            return
        number = number_of(text)
        delay = self._fleet.delay(number, {queue for queue, _ in served.places}, served.works)
        message = Message(number, served, time.monotonic(), delay.answers, is_late=delay.steps > 0)
        if delay.steps == 0 or self._is_eager:
            self._receive(served, message)
        else:
            self._waiting[str(number)] = message
            call_later(delay.steps * STEP, partial(self._begin_step, str(number)))

    def _begin_step(self, number: str) -> None:
        """Wake the worker for a message that no worker has answered."""
        if (message := self._waiting.pop(number, None)) is not None:
            self._receive(message.due, message)

    def _drop(self, numbers: frozenset[str]) -> None:
        """Forget messages that others have answered."""
        for number in numbers:
            self._waiting.pop(number, None)

    def _taken_by_claim(self, found: list[Place], left: Set[Place]) -> Iterator[Message]:
        """Yield the messages of which nothing is left for others; see whether to be eager was of use."""
        places = set(found)
        for message in self._inbox.taken:
            named = message.due.places or frozenset()
            if message.is_late:
                self._is_eager = not named.isdisjoint(places)
            if named.isdisjoint(left) or len(found) >= message.due.works:
                found = found[message.due.works :]
                yield message

    def _may_answer(self, message: Message) -> bool:
        """Tell whether others wait for this worker's answer."""
        is_awaited = time.monotonic() - message.received_at < TOO_LATE
        return is_awaited and (message.answers or (message.is_late and self._is_eager))
