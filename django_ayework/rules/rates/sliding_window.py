"""Counting in aligned windows, the one before fading out."""

from __future__ import annotations

from django_ayework.rules.rates.rate import Rate, State


class SlidingWindow(Rate):
    """At most ``limit`` hits in the present window and the share of the one before that is still near.

    Windows are aligned to multiples of their length since 1970. With ``before`` hits in the last one,
    ``here`` in this one and ``elapsed`` since it began, a hit is allowed if
    ``before·((window − elapsed)/window) + here + 1 ≤ limit``. It spreads hits more evenly than
    ``FixedWindow``, and never lets two full windows meet.
    """

    def free_at(self, at: int) -> int:
        """Return the first moment that fits the formula: in this window, the next, or the one after."""
        index, before, here = self._moved_to(at)
        for number, faded, counted in ((index, before, here), (index + 1, here, 0)):
            elapsed = self._elapsed_needed(faded, counted)
            if elapsed < self.window:
                return max(at, number * self.window + elapsed)
        return (index + 2) * self.window

    def counted(self, at: int) -> State:
        """Count in the window of this moment."""
        index, before, here = self._moved_to(at)
        return index, before, here + 1

    def _moved_to(self, at: int) -> tuple[int, int, int]:
        """Return window, hits before and hits here as they stand at a moment; never a window gone by."""
        index = at // self.window
        if self.state is None:
            return index, 0, 0
        last, before, here = self.state
        if index <= last:
            return last, before, here
        return index, here if index == last + 1 else 0, 0

    def _elapsed_needed(self, before: int, here: int) -> int:
        """Return how far into a window one hit more fits; the whole window when it does not."""
        room = self.limit - here - 1
        if room < 0:
            return self.window
        return max(0, self.window - room * self.window // before) if before else 0
