"""What the claiming loop sleeps on."""

from __future__ import annotations

import threading


class Wake(threading.Event):
    """An event that many set and one waits for: to set it again while it is set costs next to nothing."""

    def set(self) -> None:
        """Wake the loop."""
        if not self.is_set():
            super().set()
