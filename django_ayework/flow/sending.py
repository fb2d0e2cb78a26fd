"""Sending after a commit: at once, or together with what follows, and never in the way of the caller.

The ids of works that became due are pushed to the Queue of their queue here.
"""

from __future__ import annotations

import atexit
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar

from django_ayework.compat import after_fork_in_child
from django_ayework.conf import get_settings
from django_ayework.define.types import registry
from django_ayework.errors import ends_process
from django_ayework.flow.hooks import report
from django_ayework.heartbeat import Heartbeat
from django_ayework.ports.queue import get_queue
from django_ayework.rules.controls import DEFAULT_WEIGHT, TypeControl
from django_ayework.store.connections import close_all_connections
from django_ayework.store.sessions import cut, engine_session

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
#: Seconds after which the thread counts as stuck while it sends.
STALL = 60.0
#: Seconds to wait for the thread's end.
STOP_TIMEOUT = 2.0

N = TypeVar("N")
M = TypeVar("M", contravariant=True)


class Pending(Protocol[M]):
    """Messages that are sent together."""

    @property
    def is_flood(self) -> bool: ...

    def __bool__(self) -> bool: ...

    def add(self, more: M, /) -> object: ...


class Sender(ABC, Generic[N]):
    """Sends what commits have brought about: in the thread that has committed, or in a thread of its own.

    It is sent at once if that is quick and the last time was some time ago. Otherwise the thread sends it,
    together with what follows. The thread and its connection live while there is much to send. A thread that
    is stuck or has died is noticed with the next message, as a web process has no watchdog. Nothing here
    raises, and nothing is sent twice: other processes poll now and then.
    """

    #: The name of the thread; the class of batches; the phase and the report of a failure.
    thread_name: ClassVar[str]
    batch_type: ClassVar[type[Any]]
    failure: ClassVar[tuple[str, str]]

    def __init__(self) -> None:
        self.reset()
        after_fork_in_child(self.reset)
        atexit.register(self.stop)

    @abstractmethod
    def transmit(self, batch: Any) -> None:
        """Send a batch, or raise what keeps it from being sent."""

    def reset(self) -> None:
        """Begin anew, as in a forked process: the thread is that of its parent."""
        self._changed = threading.Condition(threading.Lock())
        self._batch: Pending[N] = self.batch_type()
        self._thread: threading.Thread | None = None
        self._heartbeat = Heartbeat(self.thread_name)
        self._next_at = float("-inf")  # when a message may be sent, had all before kept their intervals
        self._is_failing = False
        self._is_stopping = False

    def send_soon(self, more: N, is_quick: bool) -> None:
        """Send this in the calling thread if it ``is_quick``, or soon in the thread of its own.

        What keeps it from being sent is reported: the caller has committed.
        """
        try:
            batch = self._add(more, is_quick)
        except Exception as error:  # the thread cannot be started, or is stuck
            self.fail(error)
            return
        if batch:
            self._send(batch)

    def stop(self) -> None:
        """End the thread once it has sent the rest; wait for it, but not for ever."""
        with self._changed:
            thread, self._is_stopping = self._thread, True
            self._changed.notify()
        if thread is not None:
            thread.join(STOP_TIMEOUT)

    def _add(self, more: N, is_quick: bool) -> Pending[N] | None:
        """Add to the batch; return the batch that the caller is to send, None if the thread sends it.

        After a failure the thread sends, until it can: a caller must not wait for a server that is away.
        """
        with self._changed:
            was_empty = not self._batch
            self._batch.add(more)
            now = time.monotonic()
            if was_empty and now >= self._ready_at and is_quick and not self._is_failing:
                return self._take(now)
            if self._thread is None or not self._thread.is_alive():
                self._is_stopping = False
                thread = threading.Thread(target=self._serve, name=self.thread_name, daemon=True)
                thread.start()  # it may be refused, and then the next message tries again
                self._thread = thread
            elif (silence := self._heartbeat.silence()) > STALL:
                cut(self._heartbeat.socket)
                raise TimeoutError(f"the thread {self.thread_name!r} has been sending for {silence:.0f} s")
            elif was_empty:
                self._changed.notify()
            return None

    @property
    def _ready_at(self) -> float:
        """The time from which the next message may be sent."""
        return self._next_at - (BURST - 1) * INTERVAL

    def _take(self, now: float) -> Pending[N]:
        """Return the batch to send now; the caller has the lock."""
        batch, self._batch = self._batch, self.batch_type()
        interval = FLOOD_INTERVAL if batch.is_flood else INTERVAL
        self._next_at = max(self._next_at, now) + interval
        return batch

    def _serve(self) -> None:
        """Send batches, until there has been none for a while."""
        with self._heartbeat.of_this_thread(), engine_session():
            try:
                while batch := self._next():
                    self._send(batch)
            finally:
                close_all_connections()

    def _next(self) -> Pending[N] | None:
        """Wait for something to send, and for the time to send them; None when the thread is to end."""
        self._heartbeat.beat(rest=math.inf)
        with self._changed:
            while not self._batch:
                notified = not self._is_stopping and self._changed.wait(IDLE)
                if not notified and not self._batch:
                    self._thread = None
                    return None
            while (left := self._ready_at - time.monotonic()) > 0 and not self._is_stopping:
                self._changed.wait(left)
            self._heartbeat.beat()
            return self._take(time.monotonic())

    def _send(self, batch: Pending[N]) -> None:
        """Send a batch; an error is reported once while it lasts, and raised if it ends the process."""
        try:
            self.transmit(batch)
            self._is_failing = False
        except BaseException as error:  # of a PubSub or Queue of the project's
            self.fail(error)
            if ends_process(error):
                raise

    def fail(self, error: BaseException) -> None:
        """Note that something could not be sent."""
        was_failing, self._is_failing = self._is_failing, True
        self._next_at = time.monotonic() + PAUSE_AFTER_FAILURE + BURST * INTERVAL
        if threading.current_thread() is self._thread:
            close_all_connections()
        if not was_failing:
            report(error, *self.failure)


# Ids that are delivered outside of the database.

#: Ids by the names of their queues.
Ids: TypeAlias = Mapping[str, Sequence[str]]
#: Ids that the committing thread pushes; the sending thread pushes more.
QUICK = 100
#: Ids that wait for the sending thread; those beyond are dropped, and workers find their works.
MOST_PENDING = 100_000


def may_be_pushed(type: str) -> bool:
    """Tell whether workers may claim works of a type by their ids, as far as its code says.

    What takes a decision at the claim is claimed from the table: limits, weights, units, batches, doers.
    """
    known = registry.find(type)
    if known is None or registry.batch(type) is not None or registry.order_of(type) == "unit":
        return False
    options = known.settings
    has_doer = options.doer is not None or get_settings().doer is not None
    return not (has_doer or options.max_running or options.weight != DEFAULT_WEIGHT)


def is_limited(control: TypeControl) -> bool:
    """Tell whether operators have decided something that takes a decision at the claim."""
    return bool(control.max_running or control.max_claimed) or control.is_ranked


def is_pushed(queue: str, type: str) -> bool:
    """Tell whether the ids of these works are pushed."""
    return queue in get_settings().queues and may_be_pushed(type)


class IdBatch:
    """Ids that are pushed together, by the names of their queues."""

    is_flood = False

    def __init__(self) -> None:
        self.ids: dict[str, list[str]] = {}
        self._room = MOST_PENDING

    def __bool__(self) -> bool:
        return bool(self.ids)

    def add(self, more: Ids, /) -> None:
        """Add ids, as far as there is room."""
        for name, ids in more.items():
            self.ids.setdefault(name, []).extend(ids[: self._room])
            self._room -= min(self._room, len(ids))


class IdSender(Sender[Ids]):
    """Pushes ids to the Queues of their queues."""

    thread_name = "ayework-delivery-sender"
    batch_type = IdBatch
    failure = "queue", "ids could not be delivered, and workers will find their works in the table"

    def push(self, ids: Ids) -> None:
        """Push ids soon."""
        self.send_soon(ids, is_quick=sum(map(len, ids.values())) <= QUICK)

    def transmit(self, batch: IdBatch) -> None:
        """See Sender.transmit()."""
        for name, ids in batch.ids.items():
            get_queue(name).push(name, ids)


id_sender = IdSender()


def push_pending(works: Iterable[tuple[str, str, str]]) -> None:
    """Push the ids of works that have become due, each given with its queue and its type."""
    ids: dict[str, list[str]] = {}
    for id, queue, type in works:
        if is_pushed(queue, type):
            ids.setdefault(queue, []).append(id)
    if ids:
        id_sender.push(ids)
