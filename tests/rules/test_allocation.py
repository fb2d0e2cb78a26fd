"""Which types and tasks are next: limits, weights, fairness."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from fractions import Fraction
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ayework.doers import weights
from django_ayework.doers.bounded import by_age, by_balance, by_priority
from django_ayework.rules.controls import (
    Controls,
    TypeControl,
    allocated,
    capped,
)
from tests.rules.moments import NOON

NO_LIMITS = dict.fromkeys("abc", 1000)


def first_choices(controls: Controls, running: dict[str, int], caps: dict[str, int]) -> Counter[str]:
    """Let one work be claimed 3 000 times."""
    chance = random.Random(7)
    return Counter(type for _ in range(3000) for type in allocated(caps, 1, controls, running, chance))


@pytest.mark.parametrize(
    ("weights", "running", "expected"),
    [
        ((20, 20), (0, 0), (1 / 2, 1 / 2)),
        ((1, 10), (0, 0), (1 / 11, 10 / 11)),
        ((1, 10), (0, 2), (3 / 11, 8 / 11)),
        ((1, 5, 1), (0, 0, 99), (1 / 6, 5 / 6, 0)),
    ],
)
def test_chances_follow_weights_and_running_works(weights, running, expected):
    types = dict(zip("abc", weights, strict=False))
    controls = Controls({type: TypeControl(weight=weight) for type, weight in types.items()})
    chosen = first_choices(controls, dict(zip(types, running, strict=True)), dict.fromkeys(types, 1))
    for type, share in zip(types, expected, strict=True):
        assert chosen[type] / 3000 == pytest.approx(share, abs=3 * (share * (1 - share) / 3000) ** 0.5 + 1e-9)


def test_a_higher_priority_is_absolute_while_it_has_room():
    controls = Controls({"a": TypeControl(priority=2, weight=1), "b": TypeControl(weight=1000)})
    assert allocated({"a": 3, "b": 9}, 5, controls, {}, random.Random(1)) == {"a": 3, "b": 2}
    assert first_choices(controls, {"a": 500}, NO_LIMITS) == {"a": 3000}


controls = st.builds(
    TypeControl,
    priority=st.integers(-2, 2),
    weight=st.integers(1, 100),
    max_running=st.integers(0, 5),
    max_claimed=st.integers(0, 5),
)


@given(
    st.dictionaries(st.sampled_from("abcdef"), controls, min_size=1),
    st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 8)),
    st.integers(1, 30),
    st.randoms(use_true_random=False),
)
def test_no_ration_exceeds_a_limit_and_no_room_is_left_unused(types, running, number, chance):
    given = Controls(types)
    caps = capped(dict.fromkeys(types, number), given, running)
    shares = allocated(caps, number, given, running, chance)
    assert sum(shares.values()) == min(number, sum(caps.values()))
    for type, limits in types.items():
        room = limits.max_running - running.get(type, 0) if limits.max_running else number
        assert caps[type] == max(0, min(number, room, limits.max_claimed or number))
        assert shares.get(type, 0) <= caps[type]
    assert all(shares.values())


def candidate(weight=20, pending=0, priority=0, name="any"):
    return SimpleNamespace(name=name, weight=weight, pending=pending, priority=priority)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([(20, 0), (20, 0)], "1/2 1/2"),  # equal weights
        ([(1, 0), (10, 0)], "1/11 10/11"),
        ([(1, 0), (10, 2)], "3/11 8/11"),  # much pending lowers the chance
        ([(1, 0), (5, 0), (1, 99)], "1/6 5/6 0"),  # too much pending waits
        ([(7, 3)], "1"),  # a single candidate is chosen
    ],
)
def test_the_chances_of_the_specification(given, expected):
    scores = weights([candidate(*one) for one in given])
    assert [Fraction(score, sum(scores)) for score in scores] == list(map(Fraction, expected.split()))


def test_a_higher_priority_wins_and_candidates_without_weight_are_excluded():
    assert weights([candidate(1000, priority=0), candidate(1, priority=2)]) == [0, 1]
    for weight in (0, -1, -0.5):
        out = candidate(weight, pending=99, priority=7)
        assert weights([candidate(1), out, candidate(10)]) == [1, 0, 10]
        assert weights([out]) == [0]
    assert weights(iter([])) == []
    assert weights([candidate(0.5), candidate(1.5, pending=1)]) == [1.0, 1.0]


candidates = st.lists(
    st.builds(candidate, st.integers(-2, 50), st.integers(0, 99), st.integers(-2, 2)), max_size=12
)


@given(candidates)
def test_a_score_follows_the_formula_and_one_is_above_zero_unless_all_are_excluded(given):
    top = max((one.priority for one in given if one.weight > 0), default=None)
    racing = [one for one in given if one.weight > 0 and one.priority == top]
    pending, weight = sum(one.pending for one in racing), sum(one.weight for one in racing)
    scores = weights(given)
    for one, score in zip(given, scores, strict=True):
        assert score == (max(0, one.weight * (pending + 1) - weight * one.pending) if one in racing else 0)
    assert any(scores) == any(one.weight > 0 for one in given)


def task(name, fairness="", priority=0, age=0, number=0):
    """A task that was created ``age`` seconds before noon."""
    return SimpleNamespace(
        name=name,
        fairness=fairness,
        priority=priority,
        created_at=NOON - timedelta(seconds=age),
        number=number,
    )


def chosen(order, tasks, running=()):
    """The names in the order in which they are chosen, if what runs stays the same."""
    left, names = list(tasks), []
    while left:
        found = min(left, key=lambda task: order(task, Counter(running)))
        left.remove(found)
        names.append(found.name)
    return names


def test_a_free_place_goes_to_the_label_of_which_the_fewest_run():
    waiting = [task("a3", "A", number=3), task("b1", "B", number=4), task("c1", "C", number=5)]
    assert chosen(by_balance, waiting, ["A", "A"]) == ["b1", "c1", "a3"]
    assert chosen(by_balance, waiting, ["A", "B"]) == ["c1", "a3", "b1"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"priority": 5}, {"priority": 3, "age": 9}),  # priority before age
        ({"age": 2}, {"age": 1, "number": -1}),  # age before the order of coming
        ({"number": 1}, {"number": 2}),
    ],
)
def test_ties_between_labels_go_by_priority_then_age_then_order(one, other):
    waiting = [task("second", "B", **other), task("first", "A", **one)]
    assert chosen(by_balance, waiting, ["A", "B"]) == ["first", "second"]
    assert chosen(by_priority, waiting) == ["first", "second"]


def test_priority_ignores_labels_and_age_ignores_all_else():
    waiting = [task("high", "A", priority=1), task("low", "B")]
    assert chosen(by_priority, waiting, ["A"] * 9) == ["high", "low"]
    waiting = [task("young", "B", priority=9, number=1), task("old", "A", age=1, number=2)]
    assert chosen(by_age, waiting, ["A"] * 9) == ["old", "young"]


def test_tasks_without_a_label_count_as_one():
    waiting = [task("unlabelled", number=1), task("labelled", "A", number=2)]
    assert chosen(by_balance, waiting, ["", ""]) == ["labelled", "unlabelled"]
    assert chosen(by_balance, waiting, ["A"]) == ["unlabelled", "labelled"]
