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
from django_ayework.rules.controls import Controls, TypeControl, allocated, capped
from tests.rules.moments import NOON


def first_choices(controls: Controls, running: dict[str, int], caps: dict[str, int]) -> Counter[str]:
    """Let one work be claimed 3 000 times."""
    chance = random.Random(7)
    return Counter(type for _ in range(3000) for type in allocated(caps, 1, controls, running, chance))


@pytest.mark.parametrize(("given", "expected"), [
    ([(20, 0), (20, 0)], "1/2 1/2"), ([(1, 0), (10, 0)], "1/11 10/11"), ([(7, 3)], "1"),
    ([(1, 0), (10, 2)], "3/11 8/11"),  # much that runs lowers the chance
    ([(1, 0), (5, 0), (1, 99)], "1/6 5/6 0"),  # too much waits
])  # fmt: skip
def test_chances_follow_weights_and_running_works(given, expected):
    types = dict(zip("abc", given, strict=False))
    controls = Controls({type: TypeControl(weight=weight) for type, (weight, _) in types.items()})
    running = {type: number for type, (_, number) in types.items()}
    chosen = first_choices(controls, running, dict.fromkeys(types, 1))
    for type, share in zip(types, map(Fraction, expected.split()), strict=True):
        assert chosen[type] / 3000 == pytest.approx(share, abs=3 * (share * (1 - share) / 3000) ** 0.5 + 1e-9)


def test_a_higher_priority_is_absolute_while_it_has_room():
    controls = Controls({"a": TypeControl(priority=2, weight=1), "b": TypeControl(weight=1000)})
    assert allocated({"a": 3, "b": 9}, 5, controls, {}, random.Random(1)) == {"a": 3, "b": 2}
    assert first_choices(controls, {"a": 500}, {"a": 1000, "b": 1000}) == {"a": 3000}


few, priorities = st.integers(0, 5), st.integers(-2, 2)
limits = {"weight": st.integers(1, 100), "max_running": few, "max_claimed": few}
controls = st.builds(TypeControl, priority=priorities, **limits)


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
    for type, own in types.items():
        room = own.max_running - running.get(type, 0) if own.max_running else number
        assert caps[type] == max(0, min(number, room, own.max_claimed or number))
        assert shares.get(type, 0) <= caps[type]
    assert all(shares.values())


def candidate(weight=20, pending=0, priority=0):
    return SimpleNamespace(name="any", weight=weight, pending=pending, priority=priority)


def test_weights_may_be_fractions_in_any_iterable():
    assert weights(iter([candidate(0.5), candidate(1.5, pending=1), candidate(-0.5)])) == [1.0, 1.0, 0]


candidates = st.builds(candidate, st.integers(-2, 50), st.integers(0, 99), priorities)


@given(st.lists(candidates, max_size=12))
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
    facts = {"fairness": fairness, "priority": priority, "number": number}
    return SimpleNamespace(name=name, created_at=NOON - timedelta(seconds=age), **facts)


A3, B4, C5 = task("a3", "A", number=3), task("b4", "B", number=4), task("c5", "C", number=5)
HIGH, LOW = task("high", "A", priority=1), task("low", "B")
YOUNG, OLD = task("young", "B", priority=9, number=1), task("old", "A", age=1, number=2)
UNLABELLED, LABELLED = task("unlabelled", number=1), task("labelled", "A", number=2)


@pytest.mark.parametrize(("order", "waiting", "running", "names"), [
    # A free slot goes to the label with the fewest running tasks. Tasks without a label count as one label.
    (by_balance, [A3, B4, C5], ["A", "A"], "b4 c5 a3"), (by_balance, [A3, B4, C5], ["A", "B"], "c5 a3 b4"),
    (by_balance, [UNLABELLED, LABELLED], ["", ""], "labelled unlabelled"),
    (by_balance, [UNLABELLED, LABELLED], ["A"], "unlabelled labelled"),
    # Priority ignores labels, and age ignores all else.
    (by_priority, [HIGH, LOW], ["A"] * 9, "high low"), (by_age, [YOUNG, OLD], ["A"] * 9, "old young"),
])  # fmt: skip
def test_the_order_in_which_tasks_are_chosen(order, waiting, running, names):
    assert chosen(order, waiting, running) == names.split()


@pytest.mark.parametrize(("one", "other"), [
    ({"priority": 5}, {"priority": 3, "age": 9}),  # priority before age
    ({"age": 2}, {"age": 1, "number": -1}),  # age before the order of coming
    ({"number": 1}, {"number": 2}),
])  # fmt: skip
def test_ties_between_labels_go_by_priority_then_age_then_order(one, other):
    waiting = [task("second", "B", **other), task("first", "A", **one)]
    assert chosen(by_balance, waiting, ["A", "B"]) == chosen(by_priority, waiting, []) == ["first", "second"]


def chosen(order, tasks, running):
    """The names in the order in which they are chosen, if what runs stays the same."""
    left, names = list(tasks), []
    while left:
        found = min(left, key=lambda task: order(task, Counter(running)))
        left.remove(found)
        names.append(found.name)
    return names
