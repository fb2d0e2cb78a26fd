"""The ways to count, by name."""

from __future__ import annotations

from typing import Literal, TypeAlias

from django_ayework.errors import did_you_mean
from django_ayework.rules.rates.fixed_window import FixedWindow
from django_ayework.rules.rates.rate import Rate
from django_ayework.rules.rates.sliding_window import SlidingWindow
from django_ayework.rules.rates.token_bucket import TokenBucket

Algorithm: TypeAlias = Literal["fixed", "sliding", "token"]

ALGORITHMS: dict[str, type[Rate]] = {"fixed": FixedWindow, "sliding": SlidingWindow, "token": TokenBucket}


def algorithm_named(name: str) -> type[Rate]:
    """Return a way to count.

    >>> algorithm_named("slidng")
    Traceback (most recent call last):
    ...
    ValueError: expected algorithm to be 'fixed', 'sliding' or 'token', got: 'slidng'. Did you mean 'sliding'?
    """
    if name not in ALGORITHMS:
        raise ValueError(
            f"expected algorithm to be 'fixed', 'sliding' or 'token', got: {name!r}."
            f"{did_you_mean(str(name), ALGORITHMS)}"
        )
    return ALGORITHMS[name]
