"""Messages within one process, and no messages at all."""

from __future__ import annotations

from collections.abc import Callable

from django_ayework.ports.pubsub.base import Listener, Listeners

# --- local ---
# Messages within one process: for tests, and for a site that is one process.


class LocalPubSub:
    """Calls the listeners of this process, in the thread that publishes."""

    reaches_others = False
    is_quick = True

    def __init__(self) -> None:
        self._listeners = Listeners()

    def publish(self, channel: str, message: str) -> None:
        """See PubSub.publish()."""
        self._listeners.tell(channel, message)

    def subscribe(self, channel: str, listener: Listener) -> Callable[[], None]:
        """See PubSub.subscribe()."""
        return self._listeners.add(channel, listener)

    def close(self) -> None:
        """See PubSub.close()."""
        self._listeners.clear()

    def forget(self) -> None:
        """Begin anew in a forked process, which has other listeners."""
        self._listeners = Listeners()


# --- polling ---
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
