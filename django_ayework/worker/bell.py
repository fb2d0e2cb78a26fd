"""A bell: wakes a thread that waits for news, and may be rung where no lock may be taken."""

from __future__ import annotations

import select
import signal
import socket
from contextlib import suppress


class Bell:
    """Rung by signals, and by other threads.

    A signal handler interrupts its thread anywhere, also where it holds the lock of an ``Event`` it is about
    to wait for; to set that event in the handler would then wait for ever. Writing to a socket never waits.
    """

    def __init__(self) -> None:
        self._near, self._far = socket.socketpair()
        self._near.setblocking(False)
        self._far.setblocking(False)
        self._before: int | None = None

    def hear_signals(self) -> None:
        """Ring whenever a signal comes that has a handler; only one bell at a time can."""
        self._before = signal.set_wakeup_fd(self._far.fileno(), warn_on_full_buffer=False)

    def ring(self) -> None:
        """Wake whoever waits."""
        with suppress(OSError):  # it has been rung often enough
            self._far.send(b"!")

    def wait(self) -> None:
        """Wait until it has been rung."""
        select.select([self], [], [])
        self.hush()

    def hush(self) -> None:
        """Forget that it was rung."""
        with suppress(BlockingIOError):
            while self._near.recv(4096):
                pass

    def fileno(self) -> int:
        """Return what to wait for besides other things."""
        return self._near.fileno()

    def close(self) -> None:
        """Be done with it, and leave signals to whoever heard them before."""
        if self._before is not None:
            signal.set_wakeup_fd(self._before)
        self._near.close()
        self._far.close()
