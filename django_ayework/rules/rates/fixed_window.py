"""Counting in windows that begin with a hit."""

from __future__ import annotations

from django_ayework.rules.rates.rate import Rate, State


class FixedWindow(Rate):
    """At most ``limit`` hits from the first one until ``window`` has passed; then a new window begins.

    The strictest about bursts within a window. Two windows may meet: up to twice the limit within one
    window's length, around the moment at which one ends and the next begins.
    """

    def free_at(self, at: int) -> int:
        """Return ``at`` while there is room in the window, else the window's end."""
        if self.state is None:
            return at
        start, count = self.state
        return at if count < self.limit else max(at, start + self.window)

    def counted(self, at: int) -> State:
        """Count in the window that is open, or begin one."""
        if self.state is not None and at < self.state[0] + self.window:
            start, count = self.state
            return start, count + 1
        return at, 1
