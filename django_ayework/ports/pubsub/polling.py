"""No messages at all: everybody looks for themselves, now and then."""

from __future__ import annotations

from collections.abc import Callable

from django_ayework.ports.pubsub.protocol import Listener


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
