"""What carries wake-ups in tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django_ayework.flow.notify import sender
from django_ayework.ports.pubsub.base import LocalPubSub
from django_ayework.rules.notifications import due_from_text, ids_from_text

READERS: dict[str, Any] = {"due": due_from_text, "ended": ids_from_text, "revoked": ids_from_text}


@contextmanager
def fresh_sender() -> Iterator[None]:
    """Let what this process publishes follow the settings of the test, and of the next one."""
    sender.stop()
    sender.reset()
    yield
    sender.stop()
    sender.reset()


class Carrier(LocalPubSub):
    """Notes what is published, which reaches nobody unless the test passes it on; may fail, or hang."""

    reaches_others = is_quick = True
    is_live = False

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[str, str]] = []
        self.threads: set[str] = set()
        self.error: BaseException | None = None
        self.tries = 0
        self.calls: list[tuple[float, Any]] = []
        self._gate = threading.Event()
        self.hang, self.open = self._gate.clear, self._gate.set  # let nothing through until it opens
        self.open()

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

    def _fail(self, *arguments: object) -> Any:
        raise ConnectionError("no way")

    publish = subscribe = close = _fail
