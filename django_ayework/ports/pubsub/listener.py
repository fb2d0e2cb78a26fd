"""One thread that listens for a whole process."""

from __future__ import annotations

import heapq
import itertools
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from typing import Protocol

from django_ayework.heartbeat import Heartbeat
from django_ayework.ports.pubsub.base import Listener, Listeners

# --- ear ---
# What a process hears by.


class CannotHear(Exception):
    """Messages will never arrive here; the text says why, and what to do."""


class Ear(Protocol):
    """A connection by which messages are heard. One thread uses it, and any may ring."""

    def follow(self, channels: set[str]) -> bool:
        """Hear these channels from now on, and no others; return False if somebody rings before that.

        Raises CannotHear, or what the driver raises.
        """
        ...

    def hear(self, seconds: float) -> Iterable[tuple[str | None, str]]:
        """Wait for messages at most that long; return them with their channels, None for all channels."""
        ...

    def ring(self) -> None:
        """Let ``hear`` return soon."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...


# --- listening ---
# One thread that listens for a whole process, for as long as somebody subscribes.

logger = logging.getLogger("django_ayework")

#: Seconds until a lost connection is tried again, growing to the second figure.
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 30.0
#: Seconds the thread stays when nobody subscribes any more, for whoever is next.
LINGER = 2.0
#: Seconds after which the thread looks whether it is still wanted, if nothing is heard.
LOOK_AGAIN = 60.0
#: Seconds to wait for the thread's end.
FAREWELL = 5.0


class Listening:
    """Subscriptions, and the thread that serves them: it connects, and connects again when that is lost.

    ``open_ear`` connects. ``is_live`` tells whether messages are heard at the moment.
    """

    def __init__(self, name: str, open_ear: Callable[[], Ear]) -> None:
        self._name = name
        self._open_ear = open_ear
        self._inherited: list[object] = []
        self.forget()

    def forget(self) -> None:
        """Begin anew in a forked process: it has no thread, and the connection is its parent's.

        What is inherited is kept, as a driver might say goodbye on the parent's socket when it goes.
        """
        self._inherited.append(getattr(self, "_ear", None))
        self._lock = threading.Lock()
        self._listeners = Listeners()
        self._thread: threading.Thread | None = None
        self._ear: Ear | None = None
        #: Beats while the thread listens, or rests until it connects again.
        self.heartbeat = Heartbeat("listening")
        self._changed = threading.Event()
        self._calls: list[tuple[float, int, Callable[[], object]]] = []  # by when they are due
        self._numbers = itertools.count()
        self._is_closed = False
        self._trouble = ""
        self.is_live = False

    def subscribe(self, channel: str, listener: Listener) -> Callable[[], None]:
        """Listen to a channel; return what ends that. The thread is started if there is none."""
        with self._lock:
            remove = self._listeners.add(channel, listener)
            self._is_closed = False
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name=f"ayework-{self._name}", daemon=True)
                self._thread.start()
        self._ring()

        def unsubscribe() -> None:
            remove()
            self._ring()

        return unsubscribe

    def call_later(self, seconds: float, call: Callable[[], object]) -> None:
        """Call this in the thread that listens, after so many seconds; while that is cut off, afterwards."""
        heapq.heappush(self._calls, (time.monotonic() + seconds, next(self._numbers), call))
        if threading.current_thread() is not self._thread:
            self._ring()

    @property
    def is_gone(self) -> bool:
        """Whether the thread has ended although somebody subscribes."""
        thread = self._thread
        return thread is not None and thread.ident is not None and not thread.is_alive()

    def close(self) -> None:
        """End all subscriptions, and the thread."""
        self._listeners.clear()
        self.rest()

    def rest(self) -> None:
        """End the thread now rather than soon, if nobody subscribes."""
        with self._lock:
            thread, self._is_closed = self._thread, True
        self._ring()
        if thread is not None and not self._listeners.channels() and thread is not threading.current_thread():
            thread.join(FAREWELL)

    def _ring(self) -> None:
        """Let the thread see that something has changed."""
        self._changed.set()
        ear = self._ear
        if ear is not None:
            with suppress(OSError):
                ear.ring()

    def _serve(self) -> None:
        """Listen until nobody has subscribed for a while; a connection that is lost costs a pause."""
        with self.heartbeat.of_this_thread():
            self._listen()

    def _listen(self) -> None:
        pause = FIRST_PAUSE
        while self._thread is threading.current_thread() and not self._is_over():
            try:
                for _ in self._heard():
                    pause = FIRST_PAUSE
                    self._say("")
            except CannotHear as reason:
                self._say(f"Wake-ups of other processes are not heard, so workers poll: {reason}")
                pause = math.inf
            except Exception as error:
                self._say(f"The listener for wake-ups is cut off; workers poll meanwhile: {error}")
            self._rest(pause)
            pause = pause if pause > LONGEST_PAUSE else min(pause * 2, LONGEST_PAUSE)

    def _heard(self) -> Iterator[None]:
        """Connect and pass on what is heard, until it is time to end; yields whenever that proves good."""
        with closing(self._open_ear()) as ear:
            self._ear = ear
            try:
                followed: set[str] = set()
                while not self._is_over():
                    self._changed.clear()
                    wanted = self._listeners.channels()
                    if wanted != followed:
                        if not ear.follow(wanted):
                            continue
                        self._begin(wanted - followed)
                        followed = wanted
                        yield
                    seconds = self._until_call()
                    self.heartbeat.beat(rest=seconds)
                    for channel, message in ear.hear(seconds):
                        self._pass_on(channel, message)
                    self.heartbeat.beat()
                    self._make_calls()
            finally:
                if self._ear is ear:  # or else another thread is at it
                    self._ear, self.is_live = None, False

    def _begin(self, channels: set[str]) -> None:
        """Note that channels are heard from now on; what came before, whoever listens must look for."""
        self.is_live = True
        for channel in channels:
            self._listeners.tell(channel, "")

    def _pass_on(self, channel: str | None, message: str) -> None:
        """Tell a message to whom it concerns."""
        if channel is None:
            self._listeners.tell_all()
        else:
            self._listeners.tell(channel, message)

    def _until_call(self) -> float:
        """Return for how many seconds to hear at most."""
        return max(0.0, self._calls[0][0] - time.monotonic()) if self._calls else LOOK_AGAIN

    def _make_calls(self) -> None:
        """Make the calls that are due."""
        while self._calls and self._calls[0][0] <= time.monotonic():
            heapq.heappop(self._calls)[2]()

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

    def _say(self, trouble: str) -> None:
        """Log trouble once while it lasts, and its end; it ends with no text."""
        if trouble and not self._trouble:
            logger.warning("%s", trouble)
        elif self._trouble and not trouble:
            logger.info("The listener for wake-ups is connected again.")
        self._trouble = trouble
