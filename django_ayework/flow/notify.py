"""Notifications: commits are published to workers and waiting callers, in this process and in others.

Local notifications are function calls, made in the thread that has committed. Remote ones go through the
project's PubSub (:mod:`django_ayework.ports.pubsub`). Nothing depends on those: a process that receives none
polls.
"""

from __future__ import annotations

import atexit
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, Generic, NamedTuple, ParamSpec, TypeAlias

from django.db import connections

from django_ayework.define.context import AbortReason
from django_ayework.flow.events import report
from django_ayework.forking import after_fork_in_child
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

P = ParamSpec("P")


#: Called with True if something has ended that the listener waits for, with False if that is possible.
EndListener: TypeAlias = Callable[[bool], object]


class LocalTopic(Generic[P]):
    """The listeners of this process to one kind of notification; a forked process begins without any."""

    def __init__(self) -> None:
        self._reset()
        after_fork_in_child(self._reset)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._listeners: list[Callable[P, object]] = []

    def subscribe(self, listener: Callable[P, object]) -> None:
        """Call the listener with each notification from now on."""
        with self._lock:
            self._listeners.append(listener)

    def unsubscribe(self, listener: Callable[P, object]) -> None:
        """Remove the listener, if it is there."""
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)

    def listeners(self) -> list[Callable[P, object]]:
        """Return the listeners of this moment."""
        if not self._listeners:
            return []
        with self._lock:
            return list(self._listeners)

    def publish(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Call every listener."""
        for listener in self.listeners():
            listener(*args, **kwargs)


#: Works became due, or will be soon, by a commit of this process.
due_works: LocalTopic[[Due]] = LocalTopic()
#: Works were taken from the workers that run them, by this process; by id, each with the reason.
revoked_works: LocalTopic[[dict[str, AbortReason]]] = LocalTopic()
#: Groups settled in this process, and settled groups have receivers.
settled_groups: LocalTopic[[list[str]]] = LocalTopic()


class EndedWorks:
    """The listeners of this process to the ends of single works, groups and chains, by their ids."""

    def __init__(self) -> None:
        self._reset()
        after_fork_in_child(self._reset)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._by_id: dict[str, set[EndListener]] = {}

    def subscribe(self, ids: Collection[str], listener: EndListener) -> None:
        """Call the listener when any of these has ended."""
        with self._lock:
            for id in ids:
                self._by_id.setdefault(id, set()).add(listener)

    def unsubscribe(self, ids: Collection[str], listener: EndListener) -> None:
        """Remove the listener."""
        with self._lock:
            for id in ids:
                listeners = self._by_id.get(id, set())
                listeners.discard(listener)
                if not listeners:
                    self._by_id.pop(id, None)

    def publish(self, ids: Collection[str] | None) -> None:
        """Call the listeners of these ids; None stands for any."""
        if not self._by_id:
            return
        with self._lock:
            named = self._by_id if ids is None else [id for id in ids if id in self._by_id]
            listeners = {listener for id in named for listener in self._by_id[id]}
        for listener in listeners:
            listener(ids is not None)


ended_works = EndedWorks()


#: Seconds between two messages of a process; notifications of the meantime are sent together.
INTERVAL = 0.005
#: The same while there are more ids than can be named, as every such message says "poll".
FLOOD_INTERVAL = 0.025
#: Messages that may follow one another at once, such as of works that one request enqueues.
BURST = 4
#: Seconds without a message after which the thread ends, and its connection with it.
IDLE = 2.0
#: Seconds until the next try when a message could not be sent.
PAUSE_AFTER_FAILURE = 1.0
#: Seconds to wait for the thread's end.
STOP_TIMEOUT = 2.0


class Notification(NamedTuple):
    """What a commit, or a claim, has brought about."""

    due: Due = Due()
    ended: Collection[str] = ()
    revoked: Collection[str] = ()
    answered: Collection[str] = ()


class Batch:
    """Notifications that are sent together; ``ended`` and ``revoked`` are None for too many to be named."""

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
        """Whether there are more ids than can be named."""
        return self.ended is None or self.revoked is None

    def add(self, notification: Notification) -> None:
        """Add a notification."""
        if notification.due:
            self.works += notification.due.works
            if not notification.due.is_known_from(self.due):
                self.due |= notification.due
        self.ended = joined(self.ended, notification.ended)
        self.revoked = joined(self.revoked, notification.revoked)
        self.answered.update(notification.answered)

    def messages(self, origin: str, number: int = 0) -> list[tuple[str, str]]:
        """Return the messages to send, each with its channel."""
        messages = []
        if self.due:
            messages.append((DUE, due_to_text(replace(self.due, works=self.works), origin, number)))
        if self.answered:  # those beyond what can be named are left out: others poll in vain
            messages.append((ANSWERED, ids_to_text(sorted(self.answered)[:MOST_NAMED], origin)))
        for channel, ids in ((ENDED, self.ended), (REVOKED, self.revoked)):
            if ids is None or ids:
                messages.append((channel, ids_to_text(ids, origin)))
        return messages


def joined(known: set[str] | None, more: Collection[str]) -> set[str] | None:
    """Return ids with more of them; None stands for too many."""
    if known is None:
        return None
    known.update(more)
    return known if len(known) <= MOST_NAMED else None


class Sender:
    """Sends notifications to other processes: in the thread that has committed, or in a thread of its own.

    A notification is sent at once if that is quick and the last ones were sent some time ago. Otherwise the
    thread sends it, together with those that follow. The thread and its connection live while there is much
    to send. Nothing here raises, and nothing is sent twice: other processes poll now and then.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin anew, as in a forked process: the thread and the name are those of its parent."""
        #: The name by which this process knows its own messages.
        self.origin = secrets.token_hex(6)
        self._changed = threading.Condition(threading.Lock())
        self._batch = Batch()
        self._thread: threading.Thread | None = None
        self._next_at = float("-inf")  # when a message may be sent, had all before kept their intervals
        self._numbers = count()
        self._is_failing = False
        self._is_stopping = False

    def publish(self, notification: Notification) -> None:
        """Send a notification soon, unless no other process can receive it."""
        try:
            pubsub = get_pubsub()
            if reaches_others(pubsub) and (batch := self._add(notification, is_quick(pubsub))):
                self._send(batch)
        except Exception as error:
            self._fail(error)

    def flush(self) -> None:
        """Send the rest, as the process ends."""
        with self._changed:
            batch, self._batch = self._batch, Batch()
        if batch:
            self._send(batch)

    def stop(self) -> None:
        """End the thread once it has sent the rest; wait for it."""
        with self._changed:
            thread, self._is_stopping = self._thread, True
            self._changed.notify()
        if thread is not None:
            thread.join(STOP_TIMEOUT)

    def _add(self, notification: Notification, is_quick: bool) -> Batch | None:
        """Add a notification; return the batch that the caller is to send, None if the thread sends it.

        After a failure the thread sends, until it can: a caller must not wait for a server that is away.
        """
        with self._changed:
            was_empty = not self._batch
            self._batch.add(notification)
            now = time.monotonic()
            if was_empty and now >= self._ready_at and is_quick and not self._is_failing:
                return self._take(now)
            if self._thread is None:
                self._is_stopping = False
                self._thread = threading.Thread(target=self._serve, name="ayework-sender", daemon=True)
                self._thread.start()
            elif was_empty:
                self._changed.notify()
            return None

    @property
    def _ready_at(self) -> float:
        """The time from which the next message may be sent."""
        return self._next_at - (BURST - 1) * INTERVAL

    def _take(self, now: float) -> Batch:
        """Return the batch to send now; the caller has the lock."""
        batch, self._batch = self._batch, Batch()
        interval = FLOOD_INTERVAL if batch.is_flood else INTERVAL
        self._next_at = max(self._next_at, now) + interval
        return batch

    def _serve(self) -> None:
        """Send batches, until there has been none for a while."""
        with engine_session():
            try:
                while batch := self._next():
                    self._send(batch)
            finally:
                connections.close_all()

    def _next(self) -> Batch | None:
        """Wait for notifications, and for the time to send them; None when the thread is to end."""
        with self._changed:
            while not self._batch:
                notified = not self._is_stopping and self._changed.wait(IDLE)
                if not notified and not self._batch:
                    self._thread = None
                    return None
            while (left := self._ready_at - time.monotonic()) > 0 and not self._is_stopping:
                self._changed.wait(left)
            return self._take(time.monotonic())

    def _send(self, batch: Batch) -> None:
        """Send a batch; an error is reported once while it lasts."""
        try:
            for channel, message in batch.messages(self.origin, next(self._numbers)):
                get_pubsub().publish(channel, message)
            self._is_failing = False
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Note that a message could not be sent."""
        was_failing, self._is_failing = self._is_failing, True
        self._next_at = time.monotonic() + PAUSE_AFTER_FAILURE + BURST * INTERVAL
        if threading.current_thread() is self._thread:
            connections.close_all()
        if not was_failing:
            report(error, "pubsub", "other processes could not be woken, and will look for themselves")


sender = Sender()
after_fork_in_child(sender.reset)
atexit.register(sender.flush)


def publish_due(due: Due) -> None:
    """Publish works that were committed by themselves, without any other notification."""
    due_works.publish(due)
    sender.publish(Notification(due))


def publish_released(works: Iterable[WorkRow]) -> None:
    """Tell workers of other processes that these works, which this process gives back, are due again."""
    places = [(row.queue, row.type) for row in works]
    sender.publish(Notification(Due(frozenset(places), works=len(places))))


Unsubscribe: TypeAlias = Callable[[], None]


def subscribe_due(listener: Callable[[Due, str], object]) -> Unsubscribe:
    """Call this with works that became due by commits of other processes, and with the message's text."""

    def read(text: str) -> None:
        if due := due_from_text(text, sender.origin):
            listener(due, text)

    return subscribe(DUE, read)


def subscribe_ids(channel: str, listener: Callable[[frozenset[str] | None], object]) -> Unsubscribe:
    """Call this with the ids in the messages of a channel; None is for any."""

    def read(text: str) -> None:
        ids = ids_from_text(text, sender.origin)
        if ids is None or ids:
            listener(ids)

    return subscribe(channel, read)


#: Works, groups and chains that other processes have ended; None is for any.
subscribe_ended = partial(subscribe_ids, ENDED)
#: Works that other processes may have taken from the workers that run them; None is for any.
subscribe_revoked = partial(subscribe_ids, REVOKED)


def subscribe_answered(listener: Callable[[frozenset[str]], object]) -> Unsubscribe:
    """Call this with the numbers of DUE messages whose works other processes have taken."""
    return subscribe_ids(ANSWERED, lambda numbers: listener(numbers or frozenset()))


def subscribe(channel: str, listener: Callable[[str], None]) -> Unsubscribe:
    """Subscribe to a channel; return the function that ends that. After an error this process polls."""
    try:
        return get_pubsub().subscribe(channel, listener)
    except Exception as error:
        report(error, "pubsub", "other processes are not heard, so this one looks for itself")
        return lambda: None


def receives_remote() -> bool:
    """Tell whether notifications of other processes arrive at the moment, so that polling may be rarer."""
    return is_live(get_pubsub())


def call_later(seconds: float, call: Callable[[], object]) -> None:
    """Call this after so many seconds, in the PubSub's own thread if it has one."""
    by_pubsub = getattr(get_pubsub(), "call_later", None)
    if by_pubsub is not None:
        by_pubsub(seconds, call)
        return
    timer = threading.Timer(seconds, call)
    timer.daemon = True
    timer.start()


def listening_thread() -> Any:
    """Return the thread that receives notifications, with its heartbeat; None where there is none."""
    pubsub = get_pubsub()
    return pubsub if isinstance(getattr(pubsub, "heartbeat", None), Heartbeat) else None


def close_idle() -> None:
    """End threads and connections that nothing needs now, rather than soon."""
    sender.stop()
    close_pubsub = getattr(get_pubsub(), "rest", None)
    if close_pubsub is not None:
        close_pubsub()
