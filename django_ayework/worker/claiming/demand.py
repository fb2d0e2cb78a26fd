"""How many works to claim: the free slots, and as many more as will start within a moment."""

from __future__ import annotations

import time

#: Seconds of work to hold ready. Long works are never held back from idle workers for longer than this.
READY_FOR = 0.1
MOST_READY = 500
#: How much of a new measurement counts: one that is higher much, so that the first thousand of a flood are
#: not claimed by the dozen, one that is lower little, as that may be a moment's rest.
RISING, FALLING = 0.5, 0.1
MEASURE_EVERY = 0.01


class Demand:
    """Follows how fast works end here, and says how many to hold."""

    def __init__(self, concurrency: int) -> None:
        self.concurrency = concurrency
        self.rate = 0.0
        self._finished = 0
        self._measured_at = time.monotonic()

    def measure(self, finished: int) -> None:
        """Follow the count of ended attempts."""
        elapsed = time.monotonic() - self._measured_at
        if elapsed >= MEASURE_EVERY:
            current = (finished - self._finished) / elapsed
            self.rate += (RISING if current > self.rate else FALLING) * (current - self.rate)
            self._finished, self._measured_at = finished, time.monotonic()

    @property
    def target(self) -> int:
        """How many works to hold, running ones included."""
        return self.concurrency + min(MOST_READY, int(self.rate * READY_FOR))

    @property
    def low_water(self) -> int:
        """Claim again when this few are left: in big bites while works are quick, at once if slots idle."""
        return max(self.concurrency - 1, self.target // 2)
