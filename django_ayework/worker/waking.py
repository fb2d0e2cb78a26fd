"""Waking a worker: by commits of its own process, and by messages of others."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from functools import partial
from typing import NamedTuple

from django_ayework.conf import get_settings
from django_ayework.flow.notify import (
    Notification,
    call_later,
    close_idle,
    due_works,
    receives_remote,
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
from django_ayework.worker.threads import Wake

# --- fleet ---
# The workers that are alive, as far as one of them knows: from these it computes when it looks.

#: Seconds between two readings of who is alive, and within which they were seen (they beat every 10 s).
READ_EVERY, SEEN_WITHIN = 10.0, 25.0


class Member(NamedTuple):
    """Another worker: its number, and the queues that it serves (all, when empty)."""

    number: int
    queues: frozenset[str]


class Fleet:
    """The other workers. Until it has been read, a worker believes that it is alone."""

    def __init__(self, worker_id: str) -> None:
        self._worker_id = worker_id
        self._own = number_of(worker_id)
        self._others: tuple[Member, ...] = ()
        self._read_at = float("-inf")

    def refresh(self) -> None:
        """Read who is alive, if that is some seconds old and there is anybody to hear messages from."""
        now = time.monotonic()
        if now - self._read_at < READ_EVERY or not receives_remote():
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


# --- waking ---
# Waking a worker: by commits of its own process, and by messages of others.

#: Seconds between two steps in which the workers of a fleet look for what nobody has taken.
STEP = 0.03
#: Polls of this worker within which it looks in any case.
SOON = 4
#: Seconds after which a message is not answered any more: all others have looked.
TOO_LATE = 0.5


class Message(NamedTuple):
    """A message of another process about due works, which this worker may have to answer."""

    number: int
    due: Due  # what of it is this worker's affair
    heard_at: float
    answers: bool  # this worker is the first of those that look in its step
    is_late: bool  # nobody answered in the steps before


class Told:
    """What a worker was told to be due, until it takes that into account. Any thread may tell it."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._lock = threading.Lock()
        self._due = Due()
        #: What was asked for last, and what of it is this worker's affair.
        self._known = (self._due, self._due)
        self._messages: deque[Message] = deque(maxlen=MOST_NAMED)
        #: The messages that the last claim took into account.
        self.taken: Sequence[Message] = ()

    def add(self, due: Due, message: Message | None = None) -> bool:
        """Note what is due; return whether that is new, and any of it this worker's affair."""
        mine = self.served(due)
        with self._lock:
            before = self._due
            self._due = before | mine
            if message is not None:
                self._messages.append(message)
            return self._due != before

    def take(self) -> Due:
        """Return what it was told since it was asked last."""
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
        """Return what of it is this worker's affair; at rest the same is said again and again."""
        known, mine = self._known
        if known is not due:
            mine = due
            if due.places is not None:
                served = frozenset(place for place in due.places if self._scope.serves(place))
                start = due.start if due.start is not None and is_soon(due.start) else None
                mine = Due(served, start, due.works)
            self._known = due, mine
        return mine


def is_soon(start: float) -> bool:
    """Tell whether this worker might not look by itself before so many seconds since 1970."""
    return start - clock.now().timestamp() < SOON * get_settings().poll_interval


class Waking:
    """Lets a worker hear of due works and of revoked ones, from when it opens until it closes.

    All workers of a fleet hear the same messages. A few look at once; each other waits for its step, and
    looks if nobody has answered by then. A worker that finds works so late looks at once from then on, until
    it finds nothing: those before it are busy, gone, or serve other types.
    """

    def __init__(
        self, told: Told, fleet: Fleet, wake: Wake, doubt: Callable[[frozenset[str] | None], object]
    ) -> None:
        self._told = told
        self._fleet = fleet
        self._wake = wake
        self._doubt = doubt
        self._forget: list[Callable[[], None]] = []
        self._is_eager = False
        self._waiting: dict[str, Message] = {}  # for their steps

    def open(self) -> None:
        """Begin to hear."""
        due_works.subscribe(self._hear)
        self._forget = [
            subscribe_due(self._hear_other),
            subscribe_answered(self._drop),
            subscribe_revoked(self._doubt),
        ]

    def wait(self, seconds: float) -> None:
        """Wait at most that long until woken."""
        self._wake.wait(seconds)

    def answer(self, claimed: Iterable[Delivery], left: Callable[[], Set[Place]]) -> None:
        """After a claim, answer the messages that it took into account, if others wait for that.

        What they said to be due is taken when the claim found that many, or ``left`` nothing there.
        """
        if not self._told.taken:
            return
        found = [(delivery.row.queue, delivery.type) for delivery in claimed]
        answered = [
            str(each.number) for each in self._taken_by_claim(found, left()) if self._may_answer(each)
        ]
        if answered:
            sender.publish(Notification(answered=answered))

    def close(self) -> None:
        """Hear no more."""
        due_works.unsubscribe(self._hear)
        for forget in self._forget:
            forget()

    def rest(self) -> None:
        """Leave no thread or connection behind that nobody else needs."""
        close_idle()

    def _hear(self, due: Due) -> None:
        """Wake the worker if it is concerned."""
        if self._told.add(due):
            self._wake.set()

    def _hear_other(self, due: Due, text: str) -> None:
        """Wake the worker now or in its step, if a message of another process concerns it."""
        mine = self._told.served(due)
        if not mine.places:  # a later start, or a reason to look for itself
            self._hear(mine)
            return
        number = number_of(text)
        delay = self._fleet.delay(number, {queue for queue, _ in mine.places}, mine.works)
        message = Message(number, mine, time.monotonic(), delay.answers, is_late=delay.steps > 0)
        if delay.steps == 0 or self._is_eager:
            self._look_for(message)
        else:
            self._waiting[str(number)] = message
            call_later(delay.steps * STEP, partial(self._come_up, str(number)))

    def _look_for(self, message: Message) -> None:
        """Let the worker claim what a message says to be due."""
        if self._told.add(message.due, message):
            self._wake.set()

    def _come_up(self, number: str) -> None:
        """Look for what a message said to be due, unless somebody has answered it."""
        if (message := self._waiting.pop(number, None)) is not None:
            self._look_for(message)

    def _drop(self, numbers: frozenset[str]) -> None:
        """Forget messages that others have answered."""
        for number in numbers:
            self._waiting.pop(number, None)

    def _taken_by_claim(self, found: list[Place], left: Set[Place]) -> Iterator[Message]:
        """Yield the messages of which nothing is left for others; see whether to be early was of use."""
        places = set(found)
        for message in self._told.taken:
            named = message.due.places or frozenset()
            if message.is_late:
                self._is_eager = not named.isdisjoint(places)
            if named.isdisjoint(left) or len(found) >= message.due.works:
                found = found[message.due.works :]
                yield message

    def _may_answer(self, message: Message) -> bool:
        """Tell whether others wait for this worker's answer."""
        is_heeded = time.monotonic() - message.heard_at < TOO_LATE
        return is_heeded and (message.answers or (message.is_late and self._is_eager))
