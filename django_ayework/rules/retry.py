"""How often a work is tried, and how long it waits between attempts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Self

from django_ayework.errors import did_you_mean
from django_ayework.rules.durations import Seconds, seconds

LONGEST = 10_000 * 365 * 86_400.0  # seconds; past the last moment there is, and within what timedelta holds

#: What the fields of a retry policy are called elsewhere.
MEANINGS: Mapping[str, str] = {
    "max_attempts": "attempts",
    "max_retries": "attempts",
    "max_tries": "attempts",
    "retries": "attempts",
    "tries": "attempts",
    "times": "attempts",
    "backoff": "base",
    "countdown": "base",
    "delay": "base",
    "initial": "base",
    "interval": "base",
    "min_backoff": "base",
    "retry_delay": "base",
    "wait": "base",
    "exponent": "factor",
    "multiplier": "factor",
    "backoff_max": "max",
    "cap": "max",
    "max_backoff": "max",
    "max_delay": "max",
    "max_wait": "max",
    "random": "jitter",
    "randomize": "jitter",
    "retry_jitter": "jitter",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """A retry policy; fields left None come from the next level down (type, settings, built-in).

    ``attempts`` counts the first try too. ``base`` and ``max`` are seconds (or timedelta).

    >>> Retry(attempts=5).over(Retry(attempts=2, base=7)) == Retry(attempts=5, base=7)
    True
    """

    attempts: int | None = None
    base: Seconds | None = None
    factor: float | None = None
    max: Seconds | None = None
    jitter: float | None = None

    def __new__(cls, **given: object) -> Self:
        """Raise TypeError for an unknown field, suggesting the nearest."""
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise TypeError(f"{name!r} is not an option of Retry.{did_you_mean(name, known, MEANINGS)}")
        return object.__new__(cls)

    def __post_init__(self) -> None:
        if self.attempts is not None and not (is_whole(self.attempts) and self.attempts >= 1):
            raise ValueError(
                f"Retry expects attempts to be a whole number, 1 or more, got: {self.attempts!r}."
            )
        for name in ("base", "max"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, seconds(value, f"Retry's {name}"))
        if self.factor is not None and not (is_number(self.factor) and 0 <= self.factor < math.inf):
            raise ValueError(f"Retry expects factor to be 0 or more, got: {self.factor!r}.")
        if self.jitter is not None and not (is_number(self.jitter) and 0 <= self.jitter <= 1):
            raise ValueError(f"Retry expects jitter between 0 and 1, got: {self.jitter!r}.")

    def over(self, lower: Retry) -> Retry:
        """Return this policy with its open fields filled from ``lower``."""
        return Retry(
            **{
                field.name: getattr(lower, field.name)
                if getattr(self, field.name) is None
                else getattr(self, field.name)
                for field in fields(self)
            }
        )


def is_whole(value: object) -> bool:
    """Tell whether a value is a whole number."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Tell whether a value is a number, as opposed to True, text and the like."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """A retry policy with every field resolved; seconds are floats."""

    attempts: int = 3
    base: float = 1.0
    factor: float = 2.0
    max: float = 30.0
    jitter: float = 0.5

    @classmethod
    def resolve(cls, *levels: Retry | None) -> RetryPolicy:
        """Merge levels field by field, the first given winning, over the built-in defaults.

        >>> RetryPolicy.resolve(Retry(base=5), None, Retry(base=1, attempts=9))
        RetryPolicy(attempts=9, base=5.0, factor=2.0, max=30.0, jitter=0.5)
        """
        merged = Retry()
        for level in levels:
            if level is not None:
                merged = merged.over(level)
        given = {f.name: getattr(merged, f.name) for f in fields(cls) if getattr(merged, f.name) is not None}
        return cls(**given)


def backoff(attempt: int, policy: RetryPolicy, random: float) -> timedelta:
    """Return the wait before the retry that follows failed attempt ``attempt`` (1 for the first).

    ``min(base·factor^(attempt−1), max)·(1 − jitter·random)``, with ``random`` in [0, 1).

    >>> backoff(3, RetryPolicy(base=0.1, factor=2, max=0.15, jitter=0), random=0.0)
    datetime.timedelta(microseconds=150000)
    """
    try:
        ceiling = min(policy.base * float(policy.factor) ** (attempt - 1), policy.max)
    except OverflowError:
        ceiling = policy.max if policy.base else 0.0
    return timedelta(seconds=min(ceiling * (1 - policy.jitter * random), LONGEST))
