"""Counting tokens that come back evenly."""

from __future__ import annotations

from django_ayework.rules.rates.rate import Rate, State


class TokenBucket(Rate):
    """A bucket of ``limit`` tokens, full at first; a hit takes one, and ``limit`` come back per ``window``.

    After a burst, hits are allowed one by one, every ``window / limit``. The level is kept as a multiple of
    the part of a token that comes back for one hit per microsecond, so it is always a whole number.
    """

    def free_at(self, at: int) -> int:
        """Return when the bucket holds a whole token."""
        level, since = self._level(at)
        missing = self.window - level
        return at if missing <= 0 else since + -(-missing // self.limit)

    def counted(self, at: int) -> State:
        """Take a token."""
        level, since = self._level(at)
        return level - self.window, since

    def _level(self, at: int) -> tuple[int, int]:
        """Return what the bucket holds (``window`` is one token), and the moment for which that is true."""
        full = self.limit * self.window
        if self.state is None:
            return full, at
        level, since = self.state
        now = max(at, since)
        return min(full, level + (now - since) * self.limit), now
