"""Who listens to which channel, in one process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from django_ayework.ports.pubsub.protocol import Listener

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
