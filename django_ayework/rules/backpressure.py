"""When to claim more slowly, and when to report a backlog."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from django_ayework.rules.durations import Seconds, seconds
from django_ayework.rules.retry import is_number

# --- backpressure ---
# Claiming more slowly while much fails: additive increase of speed, multiplicative decrease.

#: Decimal places of a delay: without rounding, steps up and down would not meet again.
PLACES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class PressureInfo:
    """What a backpressure hook is given: works running here, and attempts so far by type."""

    active: int
    succeeded: Mapping[str, int]
    failed: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pacing:
    """How fast a delay grows and shrinks; durations in seconds."""

    base: float
    factor: float
    step: float
    max: float
    min: float
    max_fail_rate: float

    def after(self, delay: float, fail_rate: float) -> float:
        """Return the delay that follows a delay, given the share of attempts that failed meanwhile.

        >>> pacing = Pacing(base=0.1, factor=2, step=0.1, max=30, min=0, max_fail_rate=0)
        >>> pacing.after(0.1, fail_rate=0.5), pacing.after(0.4, fail_rate=0)
        (0.2, 0.3)
        """
        if fail_rate > self.max_fail_rate:
            grown = delay * self.factor if delay else self.base
            return round(builtins.min(self.max, builtins.max(self.base, grown)), PLACES)
        return round(builtins.max(self.min, delay - self.step), PLACES)


def adaptive_delay(
    base: Seconds = 0.1,
    factor: float = 2,
    step: Seconds | None = None,
    max: Seconds = 30,
    min: Seconds = 0,
    max_fail_rate: float = 0,
    types: Iterable[str] | None = None,
) -> Callable[[PressureInfo], float]:
    """Return a backpressure hook: it answers how many seconds to wait before claiming.

    Each call looks at the attempts since the call before. If the share that failed is above
    ``max_fail_rate``, the delay grows by ``factor``, from ``base`` up to ``max``; otherwise it shrinks by
    ``step`` (``base``, unless given) down to ``min``, which it starts at. ``types`` are the work types to
    look at: all, unless given. Durations are seconds or timedelta.

    Raises TypeError or ValueError for values that cannot be used.

    >>> delay = adaptive_delay(types=["shop.charge"])
    >>> delay(PressureInfo(active=3, succeeded={"shop.charge": 4}, failed={"shop.charge": 1}))
    0.1
    >>> delay(PressureInfo(active=3, succeeded={"shop.charge": 9}, failed={"shop.charge": 1}))
    0.0
    """
    pacing = checked_pacing(base, factor, base if step is None else step, max, min, max_fail_rate)
    watched = (types,) if isinstance(types, str) else None if types is None else tuple(types)
    delay, succeeded, failed = pacing.min, 0, 0

    def hook(info: PressureInfo) -> float:
        nonlocal delay, succeeded, failed
        now_succeeded, now_failed = total(info.succeeded, watched), total(info.failed, watched)
        rate = fail_rate(grown(succeeded, now_succeeded), grown(failed, now_failed))
        delay, succeeded, failed = pacing.after(delay, rate), now_succeeded, now_failed
        return delay

    return hook


def checked_pacing(
    base: Seconds, factor: float, step: Seconds, max: Seconds, min: Seconds, max_fail_rate: float
) -> Pacing:
    """Return the pacing; raise for values that make no sense."""
    if not (is_number(factor) and 1 <= factor < math.inf):
        raise ValueError(f"expected factor to be a number, 1 or more, got: {factor!r}.")
    if not (is_number(max_fail_rate) and 0 <= max_fail_rate <= 1):
        raise ValueError(f"expected max_fail_rate to be between 0 and 1, got: {max_fail_rate!r}.")
    pacing = Pacing(
        base=seconds(base, "base"),
        factor=factor,
        step=seconds(step, "step"),
        max=seconds(max, "max"),
        min=seconds(min, "min"),
        max_fail_rate=max_fail_rate,
    )
    if pacing.min > pacing.max:
        raise ValueError(f"expected min to be at most max, got: min={min!r}, max={max!r}.")
    return pacing


def total(counts: Mapping[str, int], types: tuple[str, ...] | None) -> int:
    """Return the count of these types, or of all."""
    return sum(counts.values()) if types is None else sum(counts.get(type, 0) for type in set(types))


def grown(before: int, now: int) -> int:
    """Return by how much a count has grown; one that is smaller than before has begun anew."""
    return now - before if now >= before else now


def fail_rate(succeeded: int, failed: int) -> float:
    """Return the share of attempts that failed; 0 when there were none."""
    return failed / (succeeded + failed) if failed else 0.0


# --- backlog ---
# When somebody is to be told that work piles up.


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogInfo:
    """What ``ON_BACKLOG`` is given: how much runs, how much waits, and for how many seconds some has waited.

    ``queued`` is None where nobody can say.
    """

    active: int
    queued: int | None
    behind_for: float


class Episode:
    """A time in which something waits without a break, from ``since`` on.

    ``after`` is how many seconds it may last untold; it is told again ``every`` so many seconds, or once
    only. Moments are seconds on any clock that does not step back.

    >>> episode = Episode(since=100.0, after=10, every=None)
    >>> episode.told(105.0), episode.told(110.0), episode.told(500.0)
    (None, 10.0, None)
    """

    def __init__(self, since: float, after: float, every: float | None) -> None:
        self.since = since
        self.every = every
        #: When somebody is to be told next; None for never again.
        self.due_at: float | None = since + after

    def told(self, now: float) -> float | None:
        """Return how long it has lasted, if somebody is to be told now, and note that it is done."""
        if self.due_at is None or now < self.due_at:
            return None
        self.due_at = None if self.every is None else now + self.every
        return now - self.since
