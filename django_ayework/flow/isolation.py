"""Acting on many works so that one which fails, or needs a locked row, does not hold up the others."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from django.db import Error

from django_ayework.flow.hooks import report
from django_ayework.store.database import answers, is_contention, is_refused_data

T = TypeVar("T")
#: Acts on these works in one transaction; returns None if that would have to wait for locks.
Act = Callable[[Sequence[str]], T | None]

#: Seconds for which the works of a page that has failed are acted on one by one.
LONGEST_ISOLATION = 2.0


def isolated(act: Act[T], ids: Sequence[str], acted: str) -> list[T]:
    """Act on works together; if that fails or would wait for locks, on each by itself; return the results.

    ``acted`` is what a work that fails could not be, such as "reclaimed", for the report of its error. Raises
    the error of a database that is away, or that refuses every work.
    """
    if len(ids) < 2:
        return one_by_one(act, ids, acted)
    try:
        done = act(ids)
    except Exception as error:
        if not (concerns_a_work(error) or answers()):
            raise
        done = None
    return one_by_one(act, ids, acted) if done is None else [done]


def one_by_one(act: Act[T], ids: Sequence[str], acted: str) -> list[T]:
    """Act on each of these works in a transaction of its own, until the time is up.

    The order is random so that different works are reached each time. A database that answers may refuse
    one work, by a trigger or because its statement takes too long, or all, as during a failover: an error is
    that of a work if another work could be acted on.
    """
    until = time.monotonic() + LONGEST_ISOLATION
    results: list[T] = []
    refused: dict[str, Exception] = {}
    for id in random.sample(ids, len(ids)):
        if time.monotonic() >= until:
            break
        try:
            done = act([id])
        except Exception as error:
            if not (concerns_a_work(error) or answers()):
                raise
            refused[id] = error
        else:
            results += [] if done is None else [done]
    for id, refusal in refused.items():
        if not (results or concerns_a_work(refusal)):
            raise refusal
        report(refusal, "queue", f"work {id} could not be {acted}")
    return results


def concerns_a_work(error: Exception) -> bool:
    """Tell whether an error is that of one work, whatever becomes of others."""
    return not isinstance(error, Error) or is_contention(error) or is_refused_data(error)
