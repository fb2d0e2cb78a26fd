"""Notifications: commits are published to workers and waiting callers, in this process and in others.

Local notifications are function calls, made in the thread that has committed. Remote ones go through the
project's PubSub (:mod:`django_ayework.ports.pubsub`). Nothing depends on those: a process that receives none
polls.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, Generic, NamedTuple, ParamSpec, TypeAlias

from django_ayework.compat import after_fork_in_child
from django_ayework.define.context import AbortReason
from django_ayework.errors import ends_process
from django_ayework.flow.hooks import report
from django_ayework.flow.sending import Sender, push_pending
from django_ayework.heartbeat import Heartbeat
from django_ayework.ports.pubsub import get_pubsub
from django_ayework.rules.notifications import (
    ANSWERED,
    ANYTHING,
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
from django_ayework.store.database import in_transaction
from django_ayework.store.rows import WorkRow

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
#: Groups settled in this process, if anybody is to know.
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
        with self._lock:
            named = self._by_id if ids is None else [id for id in ids if id in self._by_id]
            listeners = {listener for id in named for listener in self._by_id[id]}
        for listener in listeners:
            listener(ids is not None)


ended_works = EndedWorks()


class Notification(NamedTuple):
    """The changes of a commit, or of a claim."""

    due: Due = Due()
    ended: Collection[str] = ()
    revoked: Collection[str] = ()
    answered: Collection[str] = ()


class PendingNotifications:
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

    def add(self, notification: Notification, /) -> None:
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


class NotificationSender(Sender[Notification]):
    """Sends notifications to other processes."""

    thread_name = "ayework-sender"
    batch_type = PendingNotifications
    failure = "pubsub", "other processes could not be notified, and will poll"

    def reset(self) -> None:
        """Begin anew, as in a forked process: the thread and the name are those of its parent."""
        super().reset()
        #: The name by which this process knows its own messages.
        self.origin = secrets.token_hex(6)
        self._numbers = count()

    def publish(self, notification: Notification) -> None:
        """Send a notification soon, unless no other process can receive it."""
        try:
            if reaches_remote():
                self.send_soon(notification, bool(getattr(get_pubsub(), "is_quick", False)))
        except Exception as error:
            self.fail(error)

    def transmit(self, batch: PendingNotifications) -> None:
        """See Sender.transmit()."""
        for channel, message in batch.messages(self.origin, next(self._numbers)):
            get_pubsub().publish(channel, message)


sender = NotificationSender()


def wake_workers() -> None:
    """Let the workers of all processes poll, after a commit that names no places of due works."""
    due_works.publish(ANYTHING)
    if not in_transaction():  # in a test, where ``drain`` calls this, nothing is committed
        sender.publish(Notification(ANYTHING))


def publish_released(works: Iterable[WorkRow]) -> None:
    """Notify workers of other processes of works that this process releases: they are due again.

    Their ids are pushed again, as the claim has dropped those that were delivered.
    """
    released = [(row.id, row.queue, row.type) for row in works]
    push_pending(released)
    places = frozenset((queue, type) for _, queue, type in released)
    sender.publish(Notification(Due(places, works=len(released))))


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
    """Call this with the numbers of DUE messages whose works were taken, and of the workers that say so."""
    return subscribe_ids(ANSWERED, lambda answers: listener(answers or frozenset()))


def subscribe(channel: str, listener: Callable[[str], None]) -> Unsubscribe:
    """Subscribe to a channel; return the function that ends that. After an error this process polls."""
    try:
        return partial(end_subscription, get_pubsub().subscribe(channel, listener))
    except BaseException as error:
        report(error, "pubsub", "notifications of other processes do not arrive, so this process polls")
        if ends_process(error):
            raise
        return lambda: None


def end_subscription(unsubscribe: Unsubscribe) -> None:
    """End a subscription; an error is reported, as the worker or the call that has ended needs it no more."""
    try:
        unsubscribe()
    except BaseException as error:
        report(error, "pubsub", "a subscription to notifications of other processes could not be ended")
        if ends_process(error):
            raise


def receives_remote() -> bool:
    """Tell whether notifications of other processes arrive at the moment, so that polling may be rarer."""
    return bool(getattr(get_pubsub(), "is_live", False))


def reaches_remote() -> bool:
    """Tell whether notifications may arrive in other processes."""
    return bool(getattr(get_pubsub(), "reaches_others", True))


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
