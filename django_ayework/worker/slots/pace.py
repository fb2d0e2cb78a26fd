"""Which types of work are so quick that handing each to another thread would cost more than running it."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Seconds. A hand-over between threads costs about a tenth of a millisecond on each side.
QUICK = 0.0003
#: What a type is taken to need before it is known, so that works of a new type start side by side.
UNKNOWN = 0.01
#: By how much a longer attempt raises what a type is taken to need; a shorter one lowers it by as much.
STEP = 1.1
#: The same for an attempt that took less than a part of that: so a type is soon known.
LEAP, PART = 2.0, 0.25
#: A type stays in one thread until it takes so many times there what it took a thread side by side, and at
#: least so many seconds: else a machine that is slow for a moment would be taken for a slow type.
MUCH_LONGER, NOTICEABLE = 3.0, 0.0002
#: Seconds for which a type is left alone that was tried in one thread and needed longer there.
NOT_AGAIN_FOR = 30.0


class Pace:
    """Follows how long attempts of each type take in this process; written by many threads, roughly.

    Threads that take turns look slow, each waiting for the others, and so do those that wait for a service.
    Only one thread by itself can tell which: a type whose attempts take little time per thread is tried that
    way, and not again for a while if they take long then.
    """

    def __init__(self, seconds: Callable[[], float] = time.monotonic) -> None:
        self._now = seconds
        #: By type, the median of what attempts take side by side, divided by how many run at a time.
        self._shared: dict[str, float] = {}
        #: The same for attempts in one thread, of those that are tried there.
        self._alone: dict[str, float] = {}
        self._not_before: dict[str, float] = {}

    def note(self, type: str, seconds: float, together: int, tried: bool) -> None:
        """Note how long an attempt took while so many ran, it included; ``tried`` if it was to be quick."""
        shared = self._shared.get(type, UNKNOWN)
        if not tried:
            self._shared[type] = nearer(shared, seconds / together)
            return
        self._alone[type] = alone = nearer(self._alone.get(type, shared), seconds)
        if alone >= max(NOTICEABLE, MUCH_LONGER * shared):
            self._not_before[type] = self._now() + NOT_AGAIN_FOR
            del self._alone[type]

    def is_quick(self, type: str) -> bool:
        """Tell whether works of this type may be run one after the other, though slots are free."""
        if self._shared.get(type, UNKNOWN) >= QUICK:
            return False
        return type not in self._not_before or self._now() >= self._not_before[type]


def nearer(median: float, value: float) -> float:
    """Return a median that has been moved towards a value.

    >>> nearer(1.0, 100.0), nearer(1.1, 1.0), nearer(1.0, 0.1)
    (1.1, 1.0, 0.5)
    """
    if value > median:
        return median * STEP
    return median / (LEAP if value < median * PART else STEP)
