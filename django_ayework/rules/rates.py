"""Rate limits: three ways to count, exact to the microsecond."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias

from django_ayework.documentation import value_error
from django_ayework.errors import did_you_mean
from django_ayework.rules.durations import Seconds, require_aware, seconds
from django_ayework.rules.retry import LONGEST, is_whole


@dataclass(frozen=True, slots=True)
class Allowed:
    """The hit is within the limit, and was counted. It is true, and ``Denied`` is false.

    >>> bool(Allowed()), bool(Denied(0.5))
    (True, False)
    """

    def __bool__(self) -> Literal[True]:
        return True


@dataclass(frozen=True, slots=True)
class Denied:
    """The hit is beyond the limit, and was not counted; one in exactly ``retry_after`` seconds is allowed."""

    retry_after: float

    def __bool__(self) -> Literal[False]:
        return False


HitResult: TypeAlias = Allowed | Denied


#: The counts of a rate as whole numbers, small enough for a store.
State: TypeAlias = tuple[int, ...]

#: The name under which hits are counted, such as ("label", "doer", "acme"). Each name has its own count.
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

    #: The counts so far, or None without hits. Callers may read them, store them, and assign them again.
    state: State | None

    def __init__(self, limit: int, window: Seconds) -> None:
        self.limit = whole(limit, "limit", least=1)
        self.window = require_window(window)
        self.state = None

    def hit(self, now: datetime) -> HitResult:
        """Count a hit if it is within the limit; a refused one consumes nothing.

        Raises ValueError for a naive datetime.
        """
        answer = self.peek(now)
        if answer:
            self.state = self.counted(microseconds(now))
        return answer

    def peek(self, now: datetime) -> HitResult:
        """Return the answer to a hit, without counting one."""
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


def require_window(window: Seconds) -> int:
    """Return a window in microseconds, 1 or more.

    >>> require_window(0)
    Traceback (most recent call last):
    ...
    ValueError: expected window to be more than 0 seconds, got: 0.
    See https://...
    """
    length = seconds(window, "window")
    if length == 0:
        raise value_error("doer-argument", f"expected window to be more than 0 seconds, got: {window!r}.")
    return max(1, round(min(length, LONGEST) * IN_A_SECOND))


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


Algorithm: TypeAlias = Literal["fixed", "sliding", "token"]

ALGORITHMS: dict[str, type[Rate]] = {"fixed": FixedWindow, "sliding": SlidingWindow, "token": TokenBucket}


def algorithm_named(name: str) -> type[Rate]:
    """Return a way to count.

    >>> algorithm_named("slidng")
    Traceback (most recent call last):
    ...
    ValueError: expected algorithm to be 'fixed', 'sliding' or 'token', got: 'slidng'. Did you mean 'sliding'?
    See https://...
    """
    if name not in ALGORITHMS:
        raise value_error(
            "doer-argument",
            f"expected algorithm to be 'fixed', 'sliding' or 'token', got: {name!r}."
            f"{did_you_mean(str(name), ALGORITHMS)}",
        )
    return ALGORITHMS[name]


def whole(value: int, name: str, *, least: int) -> int:
    """Return a whole number that is not too small.

    >>> whole(0, "max", least=1)
    Traceback (most recent call last):
    ...
    ValueError: expected max to be a whole number, 1 or more, got: 0.
    See https://...
    """
    if not is_whole(value) or value < least:
        raise value_error(
            "doer-argument", f"expected {name} to be a whole number, {least} or more, got: {value!r}."
        )
    return value
