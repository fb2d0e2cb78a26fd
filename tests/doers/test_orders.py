"""Which of the tasks that a doer holds is next."""

from collections import Counter
from datetime import timedelta
from types import SimpleNamespace

import pytest

from django_ayework.doers.bounded import by_age, by_balance, by_priority
from tests.rules.moments import NOON


def task(name, fairness="", priority=0, age=0, number=0):
    """A task that was created ``age`` seconds before noon."""
    created_at = NOON - timedelta(seconds=age)
    return SimpleNamespace(
        name=name, fairness=fairness, priority=priority, created_at=created_at, number=number
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


def test_priority_looks_at_no_label():
    waiting = [task("high", "A", priority=1), task("low", "B")]

    assert chosen(by_priority, waiting, ["A"] * 9) == ["high", "low"]


def test_age_looks_at_nothing_else():
    waiting = [task("young", "B", priority=9, number=1), task("old", "A", age=1, number=2)]

    assert chosen(by_age, waiting, ["A"] * 9) == ["old", "young"]


def test_tasks_without_a_label_count_as_one():
    waiting = [task("unlabelled", number=1), task("labelled", "A", number=2)]

    assert chosen(by_balance, waiting, ["", ""]) == ["labelled", "unlabelled"]
    assert chosen(by_balance, waiting, ["A"]) == ["unlabelled", "labelled"]
