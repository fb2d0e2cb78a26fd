"""What the ways to count have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from django_ayework.rules.backoff import LONGEST, is_whole
from django_ayework.rules.durations import Seconds, require_aware, seconds
from django_ayework.rules.rates.verdict import Allowed, Denied, Verdict

#: What has been counted, as whole numbers: small enough to be kept by a store.
State: TypeAlias = tuple[int, ...]

#: What hits are counted under, such as ("label", "doer", "acme"): each name has a count of its own.
Name: TypeAlias = tuple[str, ...]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
IN_A_SECOND = 1_000_000


class Rate(ABC):
    """At most ``limit`` hits per ``window`` (seconds or timedelta).

    Moments are counted in whole microseconds, so no rounding adds up. A moment before the last one that was
    counted is allowed no more than that one: a clock that steps back wins nothing.

    Raises TypeError or ValueError for a limit that is no whole number above 0, and for an empty window.
    """

    #: What has been counted so far; None when nothing was. It may be read, kept, and put back.
    state: State | None

    def __init__(self, limit: int, window: Seconds) -> None:
        self.limit = require_limit(limit)
        self.window = require_window(window)
        self.state = None

    def hit(self, now: datetime) -> Verdict:
        """Count a hit if it is within the limit; a refused one consumes nothing.

        Raises ValueError for a naive datetime.
        """
        verdict = self.peek(now)
        if verdict:
            self.state = self.counted(microseconds(now))
        return verdict

    def peek(self, now: datetime) -> Verdict:
        """Tell what a hit would be told, without counting one."""
        at = microseconds(now)
        free_at = self.free_at(at)
        return Denied((free_at - at) / IN_A_SECOND) if free_at > at else Allowed()

    @property
    def life(self) -> float:
        """The seconds after which a state that nobody hit is as good as none."""
        return 2 * self.window / IN_A_SECOND

    @abstractmethod
    def free_at(self, at: int) -> int:
        """Return the first moment, ``at`` or later, at which a hit is within the limit (microseconds)."""

    @abstractmethod
    def counted(self, at: int) -> State:
        """Return the state with one hit more, at a moment at which it is allowed."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(limit={self.limit}, window={self.window / IN_A_SECOND:g})"


def microseconds(moment: datetime) -> int:
    """Return a moment as whole microseconds since 1970.

    >>> microseconds(datetime(1970, 1, 1, 0, 0, 1, 5, tzinfo=UTC))
    1000005
    """
    return (require_aware(moment, "now") - EPOCH) // MICROSECOND


def require_limit(limit: object) -> int:
    """Return a limit: a whole number, 1 or more."""
    if not isinstance(limit, int) or not is_whole(limit) or limit < 1:
        raise ValueError(f"expected limit to be a whole number, 1 or more, got: {limit!r}.")
    return limit


def require_window(window: Seconds) -> int:
    """Return a window in microseconds, 1 or more.

    >>> require_window(0)
    Traceback (most recent call last):
    ...
    ValueError: expected window to be more than 0 seconds, got: 0.
    """
    length = seconds(window, "window")
    if length == 0:
        raise ValueError(f"expected window to be more than 0 seconds, got: {window!r}.")
    return max(1, round(min(length, LONGEST) * IN_A_SECOND))
