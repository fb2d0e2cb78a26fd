"""Whose turn it is."""

from fractions import Fraction
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ayework.doers import weights


def candidate(weight=20, pending=0, priority=0, name="any"):
    return SimpleNamespace(name=name, weight=weight, pending=pending, priority=priority)


def chances(*candidates):
    """The probability of each to be chosen."""
    scores = weights(candidates)
    return [Fraction(score, sum(scores)) for score in scores]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([(20, 0), (20, 0)], ["1/2", "1/2"]),  # equal weights
        ([(1, 0), (10, 0)], ["1/11", "10/11"]),
        ([(1, 0), (10, 2)], ["3/11", "8/11"]),  # who has much already gives way
        ([(1, 0), (5, 0), (1, 99)], ["1/6", "5/6", "0"]),  # who has too much waits
        ([(7, 3)], ["1"]),  # who is alone is chosen
    ],
)
def test_the_numbers_of_the_specification(given, expected):
    assert chances(*(candidate(*one) for one in given)) == [Fraction(chance) for chance in expected]


def test_a_higher_priority_always_wins_whatever_the_weights():
    assert weights([candidate(1000, priority=0), candidate(1, priority=2)]) == [0, 1]


@pytest.mark.parametrize("weight", [0, -1, -0.5])
def test_who_has_no_weight_is_excluded_and_counts_for_nothing(weight):
    out = candidate(weight, pending=99, priority=7)

    assert weights([candidate(1), out, candidate(10)]) == [1, 0, 10]
    assert weights([out]) == [0]


def test_nobody_has_no_scores():
    assert weights(iter([])) == []


def test_weights_may_be_fractions():
    assert weights([candidate(0.5), candidate(1.5, pending=1)]) == [1.0, 1.0]


candidates = st.lists(
    st.builds(candidate, st.integers(-2, 50), st.integers(0, 99), st.integers(-2, 2)), max_size=12
)


@given(candidates)
def test_each_has_one_score_and_somebody_has_a_chance_unless_all_are_excluded(given):
    scores = weights(given)

    assert len(scores) == len(given)
    assert all(score >= 0 for score in scores)
    assert any(scores) == any(one.weight > 0 for one in given)


@given(candidates)
def test_a_score_follows_the_formula(given):
    top = max((one.priority for one in given if one.weight > 0), default=None)
    racing = [one for one in given if one.weight > 0 and one.priority == top]
    pending, weight = sum(one.pending for one in racing), sum(one.weight for one in racing)

    for one, score in zip(given, weights(given), strict=True):
        if one in racing:
            assert score == max(0, one.weight * (pending + 1) - weight * one.pending)
        else:
            assert score == 0
