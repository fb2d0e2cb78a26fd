"""What the claiming loop sleeps on."""

from __future__ import annotations

import threading

#: Seconds that another thread takes to begin, or several.
A_MOMENT = 0.0005


class Wake(threading.Event):
    """An event that many set and one waits for: to set it again while it is set costs next to nothing."""

    def set(self) -> None:
        """Wake the loop."""
        if not self.is_set():
            super().set()

    def give_way(self) -> None:
        """Let threads begin that were just given something, and need the interpreter for it."""
        self.wait(A_MOMENT)
