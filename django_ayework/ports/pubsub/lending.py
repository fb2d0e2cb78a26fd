"""The ear of a process, lent to a thread that has nothing to do and would be woken by what is heard."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Protocol

from django_ayework.ports.pubsub.ear import Ear

#: Seconds after which the ear is taken back from somebody who does not use it.
UNUSED = 0.25


class Sleeper(Protocol):
    """What a thread sleeps on, until others wake it."""

    def wait_by(self, ear: Ear, seconds: float) -> Iterable[tuple[str | None, str]]:
        """Hear for at most that long, unless it is woken or was; return what was heard."""
        ...


class Loan:
    """Lends an ear. To hand each message from one thread to another costs more than to hear it.

    One guest hears at a time; another is told of what concerns it, as ever.
    """

    def __init__(self) -> None:
        #: Whether somebody would like to hear by it.
        self.is_wanted = False
        self._ear: Ear | None = None
        self._is_made = threading.Event()
        self._in_use = threading.Lock()
        self._uses = 0

    def lend(self, ear: Ear, until: threading.Event) -> None:
        """Let others hear by it until this is set and the ear rung, or until nobody uses it."""
        self.is_wanted = False
        self._ear = ear
        self._is_made.set()
        uses = -1
        while not until.wait(UNUSED) and (self._in_use.locked() or uses != self._uses):
            uses = self._uses
        self._is_made.clear()
        self._ear = None
        with self._in_use:  # whoever hears has been rung, or does so for a moment only
            pass

    @property
    def is_made(self) -> bool:
        """Whether the ear is lent now."""
        return self._is_made.is_set()

    def await_it(self, seconds: float) -> bool:
        """Wait for the ear; return whether it is lent."""
        return self._is_made.wait(seconds)

    def hear(self, sleeper: Sleeper, seconds: float) -> Iterable[tuple[str | None, str]] | None:
        """Sleep by the ear; return None at once if it is not there. Raises what the ear raises."""
        if not self._in_use.acquire(blocking=False):
            return None
        try:
            if (ear := self._ear) is None:
                return None
            self._uses += 1
            return sleeper.wait_by(ear, seconds)
        finally:
            self._in_use.release()
