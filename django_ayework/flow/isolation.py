"""Acting on many works so that one which fails, or needs a locked row, does not hold up the others."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from django.db import Error

from django_ayework.flow.hooks import report
from django_ayework.store.database import is_contention, is_refused_data

T = TypeVar("T")
#: Acts on these works in one transaction; returns None if that would have to wait for locks.
Act = Callable[[Sequence[str]], T | None]

#: Seconds for which the works of a page that has failed are acted on one by one.
LONGEST_ISOLATION = 2.0


def isolated(act: Act[T], ids: Sequence[str], acted: str) -> list[T]:
    """Act on works together; if that fails or would wait for locks, on each by itself; return the results.

    ``acted`` is what a work that fails could not be, such as "reclaimed", for the report of its error.
    """
    if len(ids) < 2:
        return one_by_one(act, ids, acted)
    try:
        done = act(ids)
    except Exception as error:
        if not concerns_a_work(error):
            raise
        done = None
    return one_by_one(act, ids, acted) if done is None else [done]


def one_by_one(act: Act[T], ids: Sequence[str], acted: str) -> list[T]:
    """Act on each of these works in a transaction of its own, until the time is up.

    The order is random so that different works are reached each time.
    """
    until = time.monotonic() + LONGEST_ISOLATION
    results: list[T] = []
    for id in random.sample(ids, len(ids)):
        if time.monotonic() >= until:
            break
        try:
            done = act([id])
        except Exception as error:
            if not concerns_a_work(error):
                raise
            report(error, "queue", f"work {id} could not be {acted}")
        else:
            results += [] if done is None else [done]
    return results


def concerns_a_work(error: Exception) -> bool:
    """Tell whether an error may be that of one work; any other is of the database."""
    return not isinstance(error, Error) or is_contention(error) or is_refused_data(error)
