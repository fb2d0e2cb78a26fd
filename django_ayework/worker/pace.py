"""Which types of work are so quick that handing each to another thread would cost more than running it."""

from __future__ import annotations

import time

#: Seconds. A hand-over between threads costs about a tenth of a millisecond on each side.
QUICK = 0.0002
#: What a type is taken to need before it is known, so that works of a new type start side by side.
UNKNOWN = 0.01
#: By how much a longer attempt raises what a type is taken to need; a shorter one lowers it by as much.
STEP = 1.1
#: Seconds for which a type is left alone that was tried in one thread and needed longer there.
NOT_AGAIN_FOR = 30.0


class Pace:
    """Follows how long attempts of each type take in this process; written by many threads, roughly.

    Threads that take turns look slow, each waiting for the others, and so do those that wait for a service.
    Only one thread by itself can tell which: a type whose attempts take little time per thread is tried that
    way, and not again for a while if they take long then.
    """

    def __init__(self) -> None:
        #: By type, the median of what attempts take, divided by how many run at a time.
        self._seconds: dict[str, float] = {}
        self._not_before: dict[str, float] = {}

    def note(self, type: str, seconds: float, together: int, tried: bool) -> None:
        """Note how long an attempt took while so many ran, it included; ``tried`` if it was to be quick."""
        median = self._seconds.get(type, UNKNOWN)
        median = median * STEP if seconds > median * together else median / STEP
        self._seconds[type] = median
        if tried and median >= QUICK:
            self._not_before[type] = time.monotonic() + NOT_AGAIN_FOR

    def is_quick(self, type: str) -> bool:
        """Tell whether works of this type may be run one after the other, though slots are free."""
        if self._seconds.get(type, UNKNOWN) >= QUICK:
            return False
        return type not in self._not_before or time.monotonic() >= self._not_before[type]
