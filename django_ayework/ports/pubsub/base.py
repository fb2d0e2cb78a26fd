"""The protocol of a PubSub, and what its implementations share: listeners, and one thread that listens."""

from __future__ import annotations

import heapq
import itertools
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from typing import ClassVar, Protocol, TypeAlias, runtime_checkable

from django_ayework.documentation import logged
from django_ayework.errors import ends_process
from django_ayework.heartbeat import Heartbeat
from django_ayework.logs import logger
from django_ayework.store.notifications import Unsupported

#: Called with each message of a channel. An empty message means that others may have been missed.
Listener: TypeAlias = Callable[[str], object]


@runtime_checkable
class PubSub(Protocol):
    """Carries short messages to all listeners, in any process it reaches, as soon as it can.

    Best effort: messages may be lost, doubled, late or malformed, as nothing depends on them. Channels are
    names of letters and underscores; messages are ASCII of at most 7000 characters.

    An implementation may have further attributes:

    - ``is_live`` (default False): whether it receives messages of other processes at the moment, so workers
      may poll less often.
    - ``reaches_others`` (default True): whether a message can reach other processes.
    - ``is_quick`` (default False): whether ``publish`` is so short that the thread that commits may call it.
    - ``call_later(seconds, call)``: makes a call later in the thread that listens. Without this method each
      such call takes a thread of its own.

    ``django_ayework.testing.conformance.PubSubConformance`` tells whether an implementation does this.
    """

    def publish(self, channel: str, message: str) -> None:
        """Send a message. Raises an error if it cannot be sent; the engine does not send it again."""
        ...

    def subscribe(self, channel: str, listener: Listener) -> Callable[[], None]:
        """Call the listener with each message, in any thread; return a function that ends the subscription.

        Return at once, even if nothing can be received yet. Whenever messages may have been missed, also when
        listening begins late, call the listener with an empty message.
        """
        ...

    def close(self) -> None:
        """End threads, connections and subscriptions. The PubSub may be used again afterwards."""
        ...


def connections_of(pubsub: PubSub) -> tuple[str, ...]:
    """Return what a process has connections to the queue's database for because of it."""
    return tuple(getattr(pubsub, "connections", ()))


class Listeners:
    """Listeners by channel; one that raises disturbs neither the others nor the sender."""

    def __init__(self) -> None:
        self._listeners: dict[object, tuple[str, Listener]] = {}

    def add(self, channel: str, listener: Listener) -> Callable[[], None]:
        """Add a listener; return what removes it, once or more often."""
        key = object()
        self._listeners[key] = channel, listener

        def remove() -> None:
            self._listeners.pop(key, None)

        return remove

    def deliver(self, channel: str, message: str) -> None:
        """Call the listeners of a channel."""
        for listener in [each for of, each in list(self._listeners.values()) if of == channel]:
            try:
                listener(message)
            except BaseException as error:
                logger.exception(
                    "A listener of the channel %r raised. %s", channel, logged("listener-raised")
                )
                if ends_process(error):
                    raise

    def channels(self) -> set[str]:
        """Return the channels that have listeners."""
        return {channel for channel, _ in list(self._listeners.values())}

    def clear(self) -> None:
        """Remove all listeners."""
        self._listeners.clear()


class LocalPubSub:
    """Calls the listeners of this process, in the thread that publishes."""

    reaches_others = False
    is_quick = True

    def __init__(self) -> None:
        self._listeners = Listeners()

    def publish(self, channel: str, message: str) -> None:
        """See PubSub.publish()."""
        self._listeners.deliver(channel, message)

    def subscribe(self, channel: str, listener: Listener) -> Callable[[], None]:
        """See PubSub.subscribe()."""
        return self._listeners.add(channel, listener)

    def close(self) -> None:
        """See PubSub.close()."""
        self._listeners.clear()

    def forget(self) -> None:
        """Begin anew in a forked process, which has other listeners."""
        self._listeners = Listeners()


# No messages at all: everybody looks for themselves, now and then.


class PollingPubSub:
    """Drops everything, without a connection or a thread."""

    reaches_others = False
    is_quick = True

    def publish(self, channel: str, message: str) -> None:
        """Send it to nobody."""

    def subscribe(self, channel: str, listener: Listener) -> Callable[[], None]:
        """Never call the listener."""
        return lambda: None

    def close(self) -> None:
        """See PubSub.close()."""


# One thread that listens for a whole process, for as long as somebody subscribes


class Receiver(Protocol):
    """A connection by which messages arrive. One thread uses it, and any may interrupt it."""

    def follow(self, channels: set[str]) -> bool:
        """Receive from these channels alone from now on; return False if it is interrupted before.

        Raises Unsupported, or what the driver raises.
        """
        ...

    def receive(self, seconds: float) -> Iterable[tuple[str | None, str]]:
        """Wait for messages at most that long; return them with their channels, None for all channels."""
        ...

    def interrupt(self) -> None:
        """Let ``receive`` return soon."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...


#: Seconds until a lost connection is tried again, growing up to LONGEST_PAUSE.
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 30.0
#: Seconds for which the thread stays without a subscription, as another one may follow.
LINGER = 2.0
#: Seconds after which the thread checks whether it is still wanted, if nothing arrives.
CHECK_AFTER = 60.0
#: Seconds to wait for the thread's end.
FAREWELL = 5.0


class Listening:
    """Subscriptions, and the thread that serves them: it connects, and connects again when that is lost.

    ``is_live`` says whether messages are received at the moment.
    """

    #: Of the thread.
    name: ClassVar[str] = "listener"
    #: Whether all messages of the channels arrive, so that ``is_live`` may be true.
    receives_all: ClassVar[bool] = True

    def __init__(self) -> None:
        self._inherited: list[object] = []
        self.forget()

    def open_receiver(self) -> Receiver:
        """Connect. Raises Unsupported where messages will never arrive, or what the driver raises."""
        raise NotImplementedError

    def forget(self) -> None:
        """Begin anew in a forked process: it has no thread, and the connection is its parent's.

        What is inherited is kept, as a driver might say goodbye on the parent's socket when it goes.
        """
        self._inherited.append(getattr(self, "_receiver", None))
        self._lock = threading.Lock()
        self._listeners = Listeners()
        self._thread: threading.Thread | None = None
        self._receiver: Receiver | None = None
        #: Beats while the thread listens, or rests until it connects again.
        self.heartbeat = Heartbeat("listening")
        self._changed = threading.Event()
        self._calls: list[tuple[float, int, Callable[[], object]]] = []  # by when they are due
        self._numbers = itertools.count()
        self._is_closed = False
        self._trouble = ""
        self.is_live = False

    def subscribe(self, channel: str, listener: Listener) -> Callable[[], None]:
        """Listen to a channel; return what ends that. A thread is started if none is there, or it died."""
        with self._lock:
            remove = self._listeners.add(channel, listener)
            self._is_closed = False
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._serve, name=f"ayework-{self.name}", daemon=True)
                try:
                    self._thread.start()
                except BaseException:
                    self._thread = None  # the next subscription tries again
                    raise
        self._interrupt()

        def unsubscribe() -> None:
            remove()
            self._interrupt()

        return unsubscribe

    def call_later(self, seconds: float, call: Callable[[], object]) -> None:
        """Call this in the thread that listens, after so many seconds; while that is cut off, afterwards."""
        heapq.heappush(self._calls, (time.monotonic() + seconds, next(self._numbers), call))
        if threading.current_thread() is not self._thread:
            self._interrupt()

    @property
    def is_gone(self) -> bool:
        """Whether the thread has ended although somebody subscribes."""
        with self._lock:  # held while the thread is started, until it is alive
            thread = self._thread
        return thread is not None and not thread.is_alive()

    def close(self) -> None:
        """End all subscriptions, and the thread."""
        self._listeners.clear()
        self.rest()

    def rest(self) -> None:
        """End the thread now rather than soon, if nobody subscribes."""
        with self._lock:
            thread, self._is_closed = self._thread, True
        self._interrupt()
        if thread is not None and not self._listeners.channels() and thread is not threading.current_thread():
            thread.join(FAREWELL)

    def _interrupt(self) -> None:
        """Let the thread see that something has changed."""
        self._changed.set()
        if (receiver := self._receiver) is not None:
            with suppress(OSError):
                receiver.interrupt()

    def _serve(self) -> None:
        """Listen until nobody has subscribed for a while; a connection that is lost costs a pause."""
        with self.heartbeat.of_this_thread():
            self._listen()

    def _listen(self) -> None:
        pause = FIRST_PAUSE
        while self._thread is threading.current_thread() and not self._is_over():
            try:
                for _ in self._received():
                    pause = FIRST_PAUSE
                    self._report("")
            except Unsupported as reason:
                self._report(f"Wake-ups of other processes are not received, so workers poll: {reason}")
                pause = math.inf
            except Exception as error:
                self._report(f"The listener for wake-ups is cut off; workers poll meanwhile: {error}")
            self._rest(pause)
            pause = pause if pause > LONGEST_PAUSE else min(pause * 2, LONGEST_PAUSE)

    def _received(self) -> Iterator[None]:
        """Connect and deliver what arrives, until it is time to end; yields whenever that proves good."""
        with closing(self.open_receiver()) as receiver:
            self._receiver = receiver
            try:
                followed: set[str] = set()
                while not self._is_over():
                    self._changed.clear()
                    wanted = self._listeners.channels()
                    if wanted != followed:
                        if not receiver.follow(wanted):
                            continue
                        self.is_live = self.receives_all
                        for channel in wanted - followed:
                            self._listeners.deliver(channel, "")  # what came before may be missed
                        followed = wanted
                        yield
                    seconds = max(0.0, self._calls[0][0] - time.monotonic()) if self._calls else CHECK_AFTER
                    self.heartbeat.beat(rest=seconds)
                    for to, message in receiver.receive(seconds):
                        for channel in followed if to is None else (to,):
                            self._listeners.deliver(channel, message)
                    self.heartbeat.beat()
                    while self._calls and self._calls[0][0] <= time.monotonic():
                        heapq.heappop(self._calls)[2]()
            finally:
                if self._receiver is receiver:  # or else another thread is at it
                    self._receiver, self.is_live = None, False

    def _is_over(self) -> bool:
        """Tell whether nobody has subscribed for a while; then the next who does starts another thread."""
        until = time.monotonic() + LINGER
        while True:
            self._changed.clear()
            with self._lock:
                if self._listeners.channels():
                    return False
                left = 0.0 if self._is_closed else until - time.monotonic()
                if left <= 0:
                    self._thread = None
                    return True
            self._changed.wait(left)

    def _rest(self, seconds: float) -> None:
        """Wait, unless nobody listens any more."""
        self.heartbeat.beat(rest=seconds)
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._changed.clear()
            if not self._listeners.channels():
                return
            self._changed.wait(min(left, LONGEST_PAUSE))

    def _report(self, trouble: str) -> None:
        """Log trouble once while it lasts, and its end; it ends with no text."""
        if trouble and not self._trouble:
            logger.warning("%s %s", trouble, logged("wake-ups-cut-off"))
        elif self._trouble and not trouble:
            logger.info("The listener for wake-ups is connected again.")
        self._trouble = trouble
