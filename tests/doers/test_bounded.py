"""Doers that run so many tasks at a time and choose the next, and the doer without limits."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

import pytest

from django_ayework import doers
from tests.rules.moments import NOON


def aged(seconds: float) -> dict[str, datetime]:
    return {"created_at": NOON - timedelta(seconds=seconds)}


def test_a_free_slot_goes_to_the_label_of_which_the_fewest_run(stage):
    doer = doers.balanced(2)
    for name in ("a1", "a2", "a3", "b1", "c1"):
        doer.submit(stage.task(name), fairness=name[0])
    assert sorted(stage.wait_for(2)) == ["a1", "a2"]
    for ending, following in [("a1", "b1"), ("b1", "c1"), ("c1", "a3")]:
        stage.end(ending)
        assert stage.wait_for(len(stage.started) + 1)[-1] == following
    assert stage.peak == 2


@pytest.mark.parametrize(
    ("make", "hints", "order"),
    [
        (
            partial(doers.priority, buffer=9),
            {"0": {"priority": 0}, "5": {"priority": 5}, "1": {"priority": 1}, "9": {"priority": 9}},
            ["0", "9", "5", "1"],  # the first takes the free slot before the others have come
        ),
        (doers.priority, {"first": {}, "young": aged(1), "old": aged(2)}, ["first", "old", "young"]),
        (
            doers.age,
            {"first": {}}
            | {str(age): {"fairness": str(age), "priority": -age} | aged(age) for age in (1, 3, 2)},
            ["first", "3", "2", "1"],
        ),
        (doers.age, {name: {} for name in "abcd"}, list("abcd")),
        (doers.balanced, {name: {"fairness": name[0]} for name in ("a1", "a2", "b1")}, ["a1", "a2", "b1"]),
    ],
    ids=["priority", "age within a priority", "age whatever the priority", "submission", "ended labels"],
)
def test_the_order_in_which_waiting_tasks_start(stage, make, hints, order):
    doer = make(1)
    for name, given in hints.items():
        doer.submit(stage.task(name), **given)
    stage.end(*hints)
    doer.drained()
    assert stage.started == order


@pytest.mark.parametrize("make", [doers.balanced, doers.priority, doers.age])
def test_it_welcomes_what_it_can_run_and_as_much_again(stage, make):
    doer = make(2)
    assert doer.available() == 4
    assert (make(3, buffer=0).available(), make(3, buffer=10).available()) == (3, 13)
    doer.submit(stage.task("a"))
    doer.submit(stage.task("b"))
    assert doer.available() == 2
    doer.submit(stage.task("c"))
    assert doer.available() == 1
    stage.end("a", "b", "c")
    doer.drained()
    assert doer.available() == 4


def test_what_is_more_than_welcome_is_accepted_and_runs(stage):
    doer = doers.balanced(1, buffer=0)
    names = list("abcdef")
    for name in names:
        doer.submit(stage.task(name))
    assert doer.available() == 0
    stage.end(*names)
    doer.drained()
    assert stage.started == names
    assert stage.peak == 1
    assert doer.available() == 1


@pytest.mark.parametrize("make", [doers.balanced, doers.priority, doers.age, doers.unlimited])
@pytest.mark.parametrize("given", [0, -1, 1.5, True, "2", None])
def test_how_many_run_is_a_whole_number_above_zero(make, given):
    option = "capacity" if make is doers.unlimited else "max"
    with pytest.raises(ValueError, match=f"expected {option} to be a whole number, 1 or more, got: "):
        make(given)
    if given and option == "max":
        with pytest.raises(ValueError, match="expected buffer to be a whole number, 0 or more, got: "):
            make(1, buffer=given)


def test_an_unlimited_doer_starts_every_task_at_once(stage):
    doer = doers.unlimited()
    doer.drained()  # it holds nothing
    assert doer.available() == 256
    names = [str(number) for number in range(20)]
    for name in names:
        doer.submit(stage.task(name))
    assert sorted(stage.wait_for(20)) == sorted(names)
    assert stage.peak == 20
    assert doer.available() == 256
    assert doers.unlimited(capacity=3).available() == 3
