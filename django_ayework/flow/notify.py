"""Wake-ups: waking workers and waiting callers, in this process and in others."""

from __future__ import annotations

import atexit
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from itertools import count
from typing import Any, NamedTuple, TypeAlias

from django.db import connections

from django_ayework.compat import after_fork_in_child
from django_ayework.flow.events import report
from django_ayework.heartbeat import Heartbeat
from django_ayework.ports.pubsub import get_pubsub
from django_ayework.ports.pubsub.base import is_live, is_quick, reaches_others
from django_ayework.rules.notifications import (
    ANSWERED,
    DUE,
    ENDED,
    MOST_NAMED,
    REVOKED,
    Due,
    due_from_text,
    due_to_text,
    ids_from_text,
    ids_to_text,
)
from django_ayework.store.rows import WorkRow
from django_ayework.store.sessions import engine_session

# --- here ---
# Who in this process is to be told: workers of what is due, whoever waits of what has ended.

DueListener: TypeAlias = Callable[[Due], object]
#: Called with True if something has ended that it waits for, with False if that may be.
EndListener: TypeAlias = Callable[[bool], object]

_workers: set[DueListener] = set()


def add_due_listener(listener: DueListener) -> None:
    """Let this be called whenever works become due, or will be soon, by a commit of this process."""
    _workers.add(listener)


def remove_due_listener(listener: DueListener) -> None:
    """Forget the listener."""
    _workers.discard(listener)


def notify_due(due: Due) -> None:
    """Wake the workers of this process."""
    for listener in list(_workers):
        listener(due)


class Waiters:
    """Who waits in this process, by the ids of works, groups and chains."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew, as in a forked process: those who waited are in its parent."""
        self._lock = threading.Lock()
        self._by_id: dict[str, set[EndListener]] = {}

    def add(self, ids: Collection[str], listener: EndListener) -> None:
        """Call this when any of these has ended."""
        with self._lock:
            for id in ids:
                self._by_id.setdefault(id, set()).add(listener)

    def remove(self, ids: Collection[str], listener: EndListener) -> None:
        """Forget the listener."""
        with self._lock:
            for id in ids:
                listeners = self._by_id.get(id, set())
                listeners.discard(listener)
                if not listeners:
                    self._by_id.pop(id, None)

    def tell(self, ids: Collection[str] | None) -> None:
        """Wake those who wait for these; None is for "any"."""
        if not self._by_id:
            return
        with self._lock:
            named = self._by_id if ids is None else [id for id in ids if id in self._by_id]
            listeners = {listener for id in named for listener in self._by_id[id]}
        for listener in listeners:
            listener(ids is not None)


waiters = Waiters()
after_fork_in_child(waiters.forget)
after_fork_in_child(_workers.clear)

# --- outbox ---
# What this process tells others: at once if it can, and together if there is a lot.

#: Seconds between two messages of a process; what comes meanwhile is sent together.
INTERVAL = 0.005
#: The same while there is more to tell than names, as all of it says "look".
FLOOD_INTERVAL = 0.025
#: Messages that may follow one another at once, such as of works that one request enqueues.
BURST = 4
#: Seconds without a message after which the thread ends, and its connection with it.
IDLE = 2.0
#: Seconds until the next try when a message could not be sent.
PAUSE_AFTER_FAILURE = 1.0
#: Seconds to wait for the thread's end.
FAREWELL = 2.0


class News(NamedTuple):
    """What a commit, or a claim, is news of."""

    due: Due = Due()
    ended: Collection[str] = ()
    revoked: Collection[str] = ()
    answered: Collection[str] = ()


class Batch:
    """News that wait to be sent together."""

    def __init__(self) -> None:
        self.due = Due()
        self.works = 0
        self.ended: set[str] | None = set()
        self.revoked: set[str] | None = set()
        self.answered: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self.due or self.answered) or self.ended != set() or self.revoked != set()

    @property
    def is_flood(self) -> bool:
        """Whether there is more than can be named."""
        return self.ended is None or self.revoked is None

    def add(self, news: News) -> None:
        """Add news."""
        if news.due:
            self.works += news.due.works
            if not news.due.is_known_from(self.due):
                self.due |= news.due
        self.ended = joined(self.ended, news.ended)
        self.revoked = joined(self.revoked, news.revoked)
        self.answered.update(news.answered)

    def messages(self, origin: str, number: int = 0) -> list[tuple[str, str]]:
        """Return what to send on which channel."""
        messages = (
            [(DUE, due_to_text(replace(self.due, works=self.works), origin, number))] if self.due else []
        )
        if self.answered:  # those beyond what can be named are left out: others look in vain
            messages.append((ANSWERED, ids_to_text(sorted(self.answered)[:MOST_NAMED], origin)))
        for channel, ids in ((ENDED, self.ended), (REVOKED, self.revoked)):
            if ids is None or ids:
                messages.append((channel, ids_to_text(ids, origin)))
        return messages


def joined(known: set[str] | None, more: Collection[str]) -> set[str] | None:
    """Return ids with more of them; None stands for any, and for too many."""
    if known is None or len(known) + len(more) > MOST_NAMED:
        return None if known is None or len(known.union(more)) > MOST_NAMED else known.union(more)
    known.update(more)
    return known


class Sender:
    """Sends news after a commit, in the thread that has committed; what follows at once, by a thread.

    That thread and its connection are there only while there is much to tell. Nothing here raises, and
    nothing is sent twice: others look for themselves now and then.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew, as in a forked process: the thread is its parent's, and so is the name."""
        #: By which this process knows its own messages.
        self.origin = secrets.token_hex(6)
        self._changed = threading.Condition(threading.Lock())
        self._batch = Batch()
        self._thread: threading.Thread | None = None
        self._next_at = float("-inf")  # when a message may be sent, had all before kept their intervals
        self._numbers = count()
        self._is_failing = False
        self._is_leaving = False

    def put(self, due: Due, ended: Collection[str] = (), revoked: Collection[str] = ()) -> None:
        """Tell others soon, unless nobody would hear it."""
        self._put(News(due, ended, revoked))

    def answer(self, messages: Collection[str]) -> None:
        """Tell others that what these messages said to be due has been taken."""
        self._put(News(answered=messages))

    def _put(self, news: News) -> None:
        """Send news now, or leave it to the thread."""
        try:
            pubsub = get_pubsub()
            if reaches_others(pubsub) and (batch := self._take_or_leave(news)):
                self._send(batch)
        except Exception as error:
            self._fail(error)

    def flush(self) -> None:
        """Send what is left, as the process ends."""
        with self._changed:
            batch, self._batch = self._batch, Batch()
        if batch:
            self._send(batch)

    def rest(self) -> None:
        """End the thread once it has sent what there is; wait for it."""
        with self._changed:
            thread, self._is_leaving = self._thread, True
            self._changed.notify()
        if thread is not None:
            thread.join(FAREWELL)

    def _take_or_leave(self, news: News) -> Batch | None:
        """Return what the caller is to send now; or leave it to the thread, and return None."""
        with self._changed:
            was_empty = not self._batch
            self._batch.add(news)
            now = time.monotonic()
            if was_empty and now >= self._ready_at and self._may_send_here():
                return self._taken(now)
            if was_empty or self._thread is None:
                self._hand_over()
            return None

    def _may_send_here(self) -> bool:
        """Tell whether whoever commits may send: it takes a moment, and worked the last time."""
        return not self._is_failing and is_quick(get_pubsub())

    def _taken(self, now: float) -> Batch:
        """Return what is to be sent now; the caller has the lock."""
        batch, self._batch = self._batch, Batch()
        interval = FLOOD_INTERVAL if batch.is_flood else INTERVAL
        self._next_at = max(self._next_at, now) + interval
        return batch

    @property
    def _ready_at(self) -> float:
        """When the next message may be sent."""
        return self._next_at - (BURST - 1) * INTERVAL

    def _hand_over(self) -> None:
        """Let the thread send; the caller has the lock."""
        if self._thread is None:
            self._is_leaving = False
            self._thread = threading.Thread(target=self._serve, name="ayework-outbox", daemon=True)
            self._thread.start()
        else:
            self._changed.notify()

    def _serve(self) -> None:
        """Send what is left here, until nothing has been for a while."""
        with engine_session():
            try:
                while batch := self._next():
                    self._send(batch)
            finally:
                connections.close_all()

    def _next(self) -> Batch | None:
        """Wait for something to send, and for its time; None when it is time to end."""
        with self._changed:
            while not self._batch:
                told = not self._is_leaving and self._changed.wait(IDLE)
                if not told and not self._batch:
                    self._thread = None
                    return None
            while (left := self._ready_at - time.monotonic()) > 0 and not self._is_leaving:
                self._changed.wait(left)
            return self._taken(time.monotonic())

    def _send(self, batch: Batch) -> None:
        """Send news; an error is reported once while it lasts."""
        try:
            for channel, message in batch.messages(self.origin, next(self._numbers)):
                get_pubsub().publish(channel, message)
            self._is_failing = False
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Note that a message could not be sent; from then on the thread tries, until it can."""
        was_failing, self._is_failing = self._is_failing, True
        self._next_at = time.monotonic() + PAUSE_AFTER_FAILURE + BURST * INTERVAL
        if threading.current_thread() is self._thread:
            connections.close_all()
        if not was_failing:
            report(error, "pubsub", "other processes could not be woken, and will look for themselves")


sender = Sender()


def notify_others(works: Iterable[WorkRow]) -> None:
    """Tell workers of other processes that these works are due again."""
    places = [(row.queue, row.type) for row in works]
    sender.put(Due(frozenset(places), works=len(places)))


after_fork_in_child(sender.forget)
atexit.register(sender.flush)

# --- elsewhere ---
# What is heard from other processes. Nothing depends on it: whoever hears nothing looks now and then.

Unsubscribe = Callable[[], None]


def subscribe_due(listener: Callable[[Due, str], object]) -> Unsubscribe:
    """Call this with what becomes due by commits of other processes, and the message that says so.

    Return what ends that.
    """

    def hear(text: str) -> None:
        if due := due_from_text(text, sender.origin):
            listener(due, text)

    return subscribe(DUE, hear)


def subscribe_answered(listener: Callable[[frozenset[str]], object]) -> Unsubscribe:
    """Call this with the numbers of messages whose works others have taken."""

    def hear(text: str) -> None:
        if answered := ids_from_text(text, sender.origin):
            listener(answered)

    return subscribe(ANSWERED, hear)


def subscribe_ended(listener: Callable[[frozenset[str] | None], object]) -> Unsubscribe:
    """Call this with ids of works, groups and chains that others have ended; None is for any."""
    return subscribe(ENDED, ids_for(listener))


def subscribe_revoked(listener: Callable[[frozenset[str] | None], object]) -> Unsubscribe:
    """Call this with works that others may have taken from whoever runs them; None is for any."""
    return subscribe(REVOKED, ids_for(listener))


def hears_others() -> bool:
    """Tell whether other processes are heard at the moment, so that there is less need to look."""
    return is_live(get_pubsub())


def call_later(seconds: float, call: Callable[[], object]) -> None:
    """Call this after so many seconds, in the thread that listens if the carrier of wake-ups can do that."""
    by_carrier = getattr(get_pubsub(), "call_later", None)
    if by_carrier is not None:
        by_carrier(seconds, call)
        return
    timer = threading.Timer(seconds, call)
    timer.daemon = True
    timer.start()


def listener() -> Any:
    """Return the thread by which this process hears others, with its heartbeat; None where there is none."""
    pubsub = get_pubsub()
    return pubsub if isinstance(getattr(pubsub, "heartbeat", None), Heartbeat) else None


def rest() -> None:
    """End threads and connections that nobody needs now, rather than soon."""
    sender.rest()
    let_rest = getattr(get_pubsub(), "rest", None)
    if let_rest is not None:
        let_rest()


def ids_for(listener: Callable[[frozenset[str] | None], object]) -> Callable[[str], None]:
    """Return what reads a message's ids for a listener."""

    def hear(text: str) -> None:
        ids = ids_from_text(text, sender.origin)
        if ids is None or ids:
            listener(ids)

    return hear


def subscribe(channel: str, listener: Callable[[str], None]) -> Unsubscribe:
    """Subscribe; where that cannot be done, nothing is heard."""
    try:
        return get_pubsub().subscribe(channel, listener)
    except Exception as error:
        report(error, "pubsub", "other processes are not heard, so this one looks for itself")
        return lambda: None
