"""What goes wrong in tests of workers."""

from __future__ import annotations

from django.db import OperationalError


class Flaky:
    """Raises a few times, then does what it stands for."""

    def __init__(self, act, times: int, error: Exception | None = None) -> None:
        self.act = act
        self.left = times
        self.error = error or OperationalError("server closed the connection unexpectedly")

    def __call__(self, *args, **kwargs):
        if self.left:
            self.left -= 1
            raise self.error
        return self.act(*args, **kwargs)
