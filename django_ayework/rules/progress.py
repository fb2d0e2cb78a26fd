"""Estimates the time that remains from the progress so far, and rounds it for people."""

from __future__ import annotations

#: Below so many seconds a guess is not worth saying: too little has happened.
SOONEST_GUESS = 1.0


def seconds_left(done: float, total: float | None, elapsed: float) -> float | None:
    """Return how many seconds the rest takes at the pace so far; None when that cannot be said yet.

    >>> seconds_left(done=25, total=100, elapsed=10)
    30.0
    >>> seconds_left(done=0, total=100, elapsed=10), seconds_left(done=5, total=None, elapsed=10)
    (None, None)
    """
    if not total or done <= 0 or elapsed < SOONEST_GUESS:
        return None
    return max(0.0, (total - done) * elapsed / done)


def rounded(seconds: float) -> tuple[int, str]:
    """Return a guess in a unit that promises no more than it knows: seconds in tens, then minutes, hours.

    >>> rounded(3), rounded(44), rounded(200), rounded(7200)
    ((10, 'seconds'), (50, 'seconds'), (3, 'minutes'), (2, 'hours'))
    """
    if seconds <= 60:
        return max(10, -int(-seconds // 10) * 10), "seconds"
    if seconds <= 5_400:
        return round(seconds / 60), "minutes"
    return round(seconds / 3_600), "hours"


def percent(done: float, total: float | None) -> int | None:
    """Return the part that is done, from 0 to 100; None without a total.

    >>> percent(1, 3), percent(7, 5), percent(2, None)
    (33, 100, None)
    """
    return None if not total else int(min(max(100 * done / total, 0), 100))
