"""What a PubSub is, and who listens to which channel."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol, TypeAlias, runtime_checkable

# --- protocol ---
# What carries wake-ups.

#: Called with each message of a channel; an empty one says that something may have been missed: look.
Listener: TypeAlias = Callable[[str], object]


@runtime_checkable
class PubSub(Protocol):
    """Carries short messages to whoever listens, in any process it reaches, as soon as it can.

    Best effort: messages may be lost, doubled, late or malformed, as nothing depends on them. Channels are
    names of letters and underscores; messages are ASCII of at most 7000 characters.

    An implementation may say more about itself in attributes: ``is_live``, whether it hears others at the
    moment, so that workers may look less often (False unless it says so); ``reaches_others``, whether to
    publish has any effect outside of this process (True); ``is_quick``, whether to publish is so short that
    whoever commits may do it, rather than a thread (False). ``call_later(seconds, call)``, if there is such a
    method, makes a call in the thread that listens; otherwise each such call takes a thread of its own.

    ``django_ayework.testing.conformance.PubSubConformance`` tells whether an implementation does this.
    """

    def publish(self, channel: str, message: str) -> None:
        """Send a message. Raises whatever keeps it from being sent; it is not sent again."""
        ...

    def subscribe(self, channel: str, listener: Listener) -> Callable[[], None]:
        """Call the listener with each message from now on, in any thread; return what ends that.

        Returns at once, whether or not anything can be heard yet. Whenever messages may have been missed
        since then, also when listening begins late, the listener is called with an empty message.
        """
        ...

    def close(self) -> None:
        """End threads and connections; subscriptions end with them. It may be used again afterwards."""
        ...


def is_live(pubsub: PubSub) -> bool:
    """Tell whether messages of other processes are heard at the moment."""
    return bool(getattr(pubsub, "is_live", False))


def reaches_others(pubsub: PubSub) -> bool:
    """Tell whether to publish has any effect outside of this process."""
    return bool(getattr(pubsub, "reaches_others", True))


def connections_of(pubsub: PubSub) -> tuple[str, ...]:
    """Return what a process has connections to the queue's database for because of it."""
    return tuple(getattr(pubsub, "connections", ()))


def is_quick(pubsub: PubSub) -> bool:
    """Tell whether whoever commits may publish, rather than a thread."""
    return bool(getattr(pubsub, "is_quick", False))


# --- listeners ---
# Who listens to which channel, in one process.

logger = logging.getLogger("django_ayework")


class Listeners:
    """Listeners by channel; one that raises disturbs neither the others nor whoever tells them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_channel: dict[str, list[Listener]] = {}

    def add(self, channel: str, listener: Listener) -> Callable[[], None]:
        """Add a listener; return what removes it, once or more often."""
        own: list[Listener] = [listener]
        with self._lock:
            self._by_channel.setdefault(channel, []).append(listener)

        def remove() -> None:
            with self._lock:
                if own:
                    self._remove(channel, own.pop())

        return remove

    def tell(self, channel: str, message: str) -> None:
        """Call everybody who listens to a channel."""
        with self._lock:
            listeners = list(self._by_channel.get(channel, ()))
        for listener in listeners:
            try:
                listener(message)
            except Exception:
                logger.exception("A listener of the channel %r raised.", channel)

    def tell_all(self) -> None:
        """Let everybody look for themselves."""
        for channel in self.channels():
            self.tell(channel, "")

    def channels(self) -> set[str]:
        """Return the channels that somebody listens to."""
        with self._lock:
            return set(self._by_channel)

    def clear(self) -> None:
        """Forget everybody."""
        with self._lock:
            self._by_channel.clear()

    def _remove(self, channel: str, listener: Listener) -> None:
        """Remove one listener, if it has not been forgotten."""
        listeners = self._by_channel.get(channel, [])
        if listener in listeners:
            listeners.remove(listener)
        if not listeners:
            self._by_channel.pop(channel, None)
