"""The protocol of a PubSub, the listeners of channels, messages within one process, and no messages."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol, TypeAlias, runtime_checkable

from django_ayework.documentation import logged

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


def is_live(pubsub: PubSub) -> bool:
    """Tell whether messages of other processes are received at the moment."""
    return bool(getattr(pubsub, "is_live", False))


def reaches_others(pubsub: PubSub) -> bool:
    """Tell whether to publish has any effect outside of this process."""
    return bool(getattr(pubsub, "reaches_others", True))


def connections_of(pubsub: PubSub) -> tuple[str, ...]:
    """Return what a process has connections to the queue's database for because of it."""
    return tuple(getattr(pubsub, "connections", ()))


def is_quick(pubsub: PubSub) -> bool:
    """Tell whether the thread that commits may publish, rather than another one."""
    return bool(getattr(pubsub, "is_quick", False))


logger = logging.getLogger("django_ayework")


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
            except Exception:
                logger.exception(
                    "A listener of the channel %r raised. %s", channel, logged("listener-raised")
                )

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
