"""Counting in this process."""

from __future__ import annotations

from functools import partial

from django_ayework.doers.rate_limited import LocalLimiter
from django_ayework.rules.rates import FixedWindow


def limiter(time, limit=1, window=10.0) -> LocalLimiter:
    return LocalLimiter(partial(FixedWindow, limit, window), time.now)


def test_each_name_has_a_count_of_its_own(time):
    counts = limiter(time)

    assert [bool(counts.hit((name,))) for name in ("a", "b", "a")] == [True, True, False]
    assert not counts.peek(("a",))
    assert counts.peek(("c",))


def test_names_that_nobody_asks_for_are_forgotten(time):
    counts = limiter(time)
    for number in range(1000):
        counts.hit((str(number),))
        time.advance(1)

    assert len(counts) < 50


def test_a_count_that_still_matters_is_never_forgotten(time):
    counts = limiter(time, limit=2, window=10)
    allowed = 0
    time.advance(5)  # so that no window ends when something is forgotten
    for _ in range(400):
        allowed += bool(counts.hit(("a",)))
        time.advance(0.25)

    assert allowed == 20  # two in each of the ten windows
