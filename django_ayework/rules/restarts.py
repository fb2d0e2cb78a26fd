"""When a process that died is started again."""

from __future__ import annotations

#: A process that lived for less than this many seconds died quickly.
QUICK = 10.0
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0


def quick_deaths(before: int, lived: float) -> int:
    """Return how many quick deaths in a row there are now.

    >>> quick_deaths(2, lived=0.5), quick_deaths(2, lived=3600)
    (3, 0)
    """
    return before + 1 if lived < QUICK else 0


def restart_pause(quick_deaths: int) -> float:
    """Return how many seconds to wait: none the first time, then twice as long each time, up to a bound.

    >>> [restart_pause(deaths) for deaths in (0, 1, 2, 3, 4, 20)]
    [0.0, 0.0, 1.0, 2.0, 4.0, 30.0]
    """
    if quick_deaths < 2:
        return 0.0
    return min(FIRST_PAUSE * 2.0 ** min(quick_deaths - 2, 10), LONGEST_PAUSE)
