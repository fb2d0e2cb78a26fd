"""What the claiming loop sleeps on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress

from django_ayework.ports.pubsub.ear import Ear

#: Seconds that another thread takes to begin, or several.
A_MOMENT = 0.0005


class Wake(threading.Event):
    """An event that many set and one waits for: to set it again while it is set costs next to nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._ring: Callable[[], None] | None = None

    def set(self) -> None:
        """Wake the loop."""
        if not self.is_set():
            super().set()
            if (ring := self._ring) is not None:
                with suppress(OSError):  # it has been rung often enough, or is closed
                    ring()

    def give_way(self) -> None:
        """Let threads begin that were just given something, and need the interpreter for it."""
        self.wait(A_MOMENT)

    def wait_by(self, ear: Ear, seconds: float) -> Iterable[tuple[str | None, str]]:
        """Hear for at most that long, unless it is set.

        Whoever sets it rings afterwards, if it can: so that comes first here, and whether it is set second.
        """
        self._ring = ear.ring
        try:
            return () if self.is_set() else ear.hear(seconds)
        finally:
            self._ring = None
