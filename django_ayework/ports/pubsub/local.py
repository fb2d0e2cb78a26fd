"""Messages within one process: for tests, and for a site that is one process."""

from __future__ import annotations

from collections.abc import Callable

from django_ayework.ports.pubsub.listeners import Listeners
from django_ayework.ports.pubsub.protocol import Listener


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
