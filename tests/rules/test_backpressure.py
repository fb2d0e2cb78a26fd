"""Claiming more slowly while much fails."""

import math
from datetime import timedelta
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ayework.hooks import PressureInfo, adaptive_delay


def delays(hook, *counts):
    """What the hook answers to these totals of successes and failures."""
    return [
        hook(PressureInfo(active=1, succeeded={"a": succeeded}, failed={"a": failed}))
        for succeeded, failed in counts
    ]


@pytest.mark.parametrize(
    ("options", "counts", "expected"),
    [
        (
            {"base": 0.1, "factor": 2, "step": 0.1, "max": 1},
            [(0, 0), (0, 1), (0, 2), (0, 3), (1, 3), (2, 3), (3, 3), (4, 3)],
            [0, 0.1, 0.2, 0.4, 0.3, 0.2, 0.1, 0],
        ),
        (
            {"base": 0.1, "factor": 10, "max": 0.5},  # the ceiling holds
            [(0, 0), (0, 1), (0, 2), (0, 3)],
            [0, 0.1, 0.5, 0.5],
        ),
        (
            {"min": 0.05, "base": 0.1, "step": 0.03},  # the floor holds, and is where it starts
            [(0, 0), (0, 1), (1, 1), (2, 1)],
            [0.05, 0.1, 0.07, 0.05],
        ),
        ({"max_fail_rate": 0.5}, [(9, 1), (9, 11)], [0, 0.1]),  # one in ten is fine, ten in ten are not
        ({"max_fail_rate": 0.5}, [(1, 1), (2, 3)], [0, 0.1]),  # exactly as many as allowed are fine
        ({}, [(0, 1), (0, 1), (0, 1)], [0.1, 0, 0]),  # nothing ended meanwhile: faster again
        ({"base": 1, "max": 0.5}, [(0, 1)], [0.5]),
    ],
)
def test_the_table_of_the_specification(options, counts, expected):
    assert delays(adaptive_delay(**options), *counts) == expected


def test_the_default_step_is_the_base():
    assert delays(adaptive_delay(base=2, factor=3), (0, 1), (0, 2), (1, 2), (2, 2)) == [2, 6, 4, 2]


def test_a_base_of_nothing_still_obeys_the_bounds():
    assert delays(adaptive_delay(base=0, min=1, max=3), (0, 1), (0, 2), (0, 3)) == [2, 3, 3]


@pytest.mark.parametrize("types", [["watched"], ("watched", "absent"), {"watched"}, "watched"])
def test_only_the_watched_types_count(types):
    hook = adaptive_delay(types=types)

    assert hook(PressureInfo(active=0, succeeded={}, failed={"other": 9})) == 0
    assert hook(PressureInfo(active=0, succeeded={"other": 99}, failed={"other": 9, "watched": 1})) == 0.1


def test_all_types_count_together():
    hook = adaptive_delay(max_fail_rate=0.5)

    assert hook(PressureInfo(active=0, succeeded={"a": 5}, failed={"b": 5})) == 0
    assert hook(PressureInfo(active=0, succeeded={"a": 5}, failed={"b": 6})) == 0.1


def test_two_hooks_do_not_share_what_they_know():
    one, other = adaptive_delay(), adaptive_delay()
    delays(one, (0, 5))

    assert delays(other, (0, 0)) == [0]


def test_counts_that_begin_anew_are_taken_as_they_are():
    hook = adaptive_delay()

    assert delays(hook, (50, 10), (3, 0), (3, 1)) == [0.1, 0, 0.1]


def test_anything_with_the_counts_will_do():
    info = SimpleNamespace(active=0, succeeded={}, failed={"a": 1})

    assert adaptive_delay()(info) == 0.1


def test_durations_may_be_timedeltas():
    hook = adaptive_delay(
        base=timedelta(seconds=1), step=timedelta(seconds=2), max=timedelta(minutes=1), min=timedelta()
    )

    assert delays(hook, (0, 1), (0, 2), (0, 3), (1, 3)) == [1, 2, 4, 2]


@given(
    st.floats(0, 100), st.floats(1, 1e6), st.floats(0, 100), st.lists(st.tuples(*[st.integers(0, 99)] * 2))
)
def test_the_delay_stays_within_its_bounds(base, factor, step, counts):
    hook = adaptive_delay(base=base, factor=factor, step=step, min=1, max=20)

    assert all(1 <= delay <= 20 for delay in delays(hook, *counts))


@pytest.mark.parametrize(
    ("options", "matter"),
    [
        ({"base": -1}, "expected base to be 0 seconds or more, got: -1"),
        ({"step": math.nan}, "expected step to be 0 seconds or more, got: nan"),
        ({"max": math.inf}, "expected max to be 0 seconds or more, got: inf"),
        ({"min": 5, "max": 4}, "expected min to be at most max, got: min=5, max=4"),
        ({"factor": 0.5}, "expected factor to be a number, 1 or more, got: 0.5"),
        ({"factor": True}, "expected factor to be a number"),
        ({"max_fail_rate": 1.5}, "expected max_fail_rate to be between 0 and 1, got: 1.5"),
    ],
)
def test_values_that_cannot_be_used_are_refused(options, matter):
    with pytest.raises(ValueError, match=matter):
        adaptive_delay(**options)
