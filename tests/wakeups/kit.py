"""What carries wake-ups in tests."""

from __future__ import annotations

import threading
from typing import Any

from django_ayework.ports.pubsub.base import LocalPubSub
from django_ayework.rules.notifications import due_from_text, ids_from_text

READERS: dict[str, Any] = {"due": due_from_text, "ended": ids_from_text, "revoked": ids_from_text}


class Carrier(LocalPubSub):
    """Notes what is published, which reaches nobody unless the test passes it on; may fail, or hang."""

    reaches_others = True
    is_quick = True
    is_live = False

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[str, str]] = []
        self.threads: set[str] = set()
        self.error: Exception | None = None
        self.tries = 0
        self.calls: list[tuple[float, Any]] = []
        self._gate = threading.Event()
        self._gate.set()

    def publish(self, channel: str, message: str) -> None:
        self.tries += 1
        self._gate.wait(60)
        if self.error is not None:
            raise self.error
        self.threads.add(threading.current_thread().name)
        self.sent.append((channel, message))

    def call_later(self, seconds: float, call: Any) -> None:
        """Note what is to be called; it is called when the test lets time pass."""
        self.calls.append((seconds, call))

    def pass_time(self, seconds: float) -> None:
        """Make the calls that are due within so many seconds of their making."""
        due = [one for one in self.calls if one[0] <= seconds]
        self.calls = [one for one in self.calls if one not in due]
        for _, call in due:
            call()

    def hang(self) -> None:
        """Let nothing through until it opens."""
        self._gate.clear()

    def open(self) -> None:
        self._gate.set()

    def received(self, channel: str) -> list[Any]:
        """What other processes read of each message."""
        return [READERS[channel](text, "other") for name, text in self.sent if name == channel]

    def deliver(self, channel: str, message: str) -> None:
        """Let this process hear a message."""
        super().publish(channel, message)


class Dropping(Carrier):
    """Loses everything, and says that it is live."""

    is_live = True


class Raising:
    """Can do nothing at all."""

    is_quick = True

    def publish(self, channel: str, message: str) -> None:
        raise ConnectionError("no way out")

    def subscribe(self, channel: str, listener: Any) -> Any:
        raise ConnectionError("no way in")

    def close(self) -> None:
        raise ConnectionError("no way back")
