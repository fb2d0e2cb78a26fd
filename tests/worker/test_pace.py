"""Pace: which types of work are run one after the other in one thread."""

from __future__ import annotations

import pytest

from django_ayework.worker.slots.pace import NOT_AGAIN_FOR, NOTICEABLE, QUICK, Pace

SHORT = QUICK / 30


class Observed:
    """A pace, and the clock it goes by."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pace = Pace(lambda: self.now)

    def observe(self, seconds: float, *, times: int = 100, together: int = 1, tried: bool = False) -> None:
        for _ in range(times):
            self.pace.note("t", seconds, together, tried)

    @property
    def is_quick(self) -> bool:
        return self.pace.is_quick("t")


@pytest.fixture
def known() -> Observed:
    return Observed()


def test_a_type_is_quick_once_some_of_its_works_were(known):
    assert not known.is_quick
    known.observe(SHORT, times=1)
    assert not known.is_quick
    known.observe(SHORT, times=20)
    assert known.is_quick
    assert not known.pace.is_quick("other")


def test_what_looks_slow_since_many_take_turns_is_taken_for_quick(known):
    known.observe(QUICK * 4, together=8)
    assert known.is_quick


@pytest.mark.parametrize("tried", [False, True])
def test_one_long_attempt_does_not_make_a_type_slow(known, tried):
    known.observe(SHORT)
    known.observe(0.5, times=1, tried=tried)
    assert known.is_quick


def test_a_type_that_was_tried_in_one_thread_and_is_slow_there_is_left_alone_for_a_while(known):
    known.observe(QUICK * 4, together=8)
    assert known.is_quick
    known.observe(QUICK * 4, tried=True)
    assert not known.is_quick
    known.observe(QUICK * 4, together=8)
    known.now += NOT_AGAIN_FOR - 1
    assert not known.is_quick
    known.now += 1
    assert known.is_quick


def test_a_slow_machine_does_not_make_a_type_slow(known):
    """It takes longer in one thread than what makes a type worth a try, but no longer than side by side."""
    known.observe(QUICK * 0.9 * 8, together=8)
    known.observe(QUICK * 1.5, tried=True)
    assert known.is_quick


def test_what_side_by_side_takes_next_to_nothing_may_take_a_little_longer_in_one_thread(known):
    known.observe(NOTICEABLE / 100)
    known.observe(NOTICEABLE / 2, tried=True)
    assert known.is_quick
    known.observe(NOTICEABLE * 2, tried=True)
    assert not known.is_quick


def test_a_type_that_becomes_slow_is_found_out(known):
    known.observe(SHORT)
    known.observe(SHORT, tried=True)
    known.observe(1.0, times=40, tried=True)
    assert not known.is_quick
