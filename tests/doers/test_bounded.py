"""Doers that run so many tasks at a time, and choose which is next."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_ayework import doers
from tests.rules.moments import NOON


def seconds_ago(seconds: float):
    return NOON - timedelta(seconds=seconds)


def test_a_free_place_goes_to_the_label_of_which_the_fewest_run(stage):
    doer = doers.balanced(2)
    for name in ("a1", "a2", "a3", "b1", "c1"):
        doer.submit(stage.task(name), fairness=name[0])
    assert sorted(stage.wait_for(2)) == ["a1", "a2"]
    for ending, following in [("a1", "b1"), ("b1", "c1"), ("c1", "a3")]:
        stage.end(ending)
        assert stage.wait_for(len(stage.started) + 1)[-1] == following
    assert stage.peak == 2


def test_what_has_ended_counts_for_no_label(stage):
    doer = doers.balanced(1)
    for name in ("a1", "a2", "b1"):
        doer.submit(stage.task(name), fairness=name[0])
    stage.end("a1", "a2", "b1")

    assert stage.wait_for(3) == ["a1", "a2", "b1"]


def test_a_higher_priority_is_sooner_among_those_that_wait(stage):
    """The first takes the free place before the others have come."""
    doer = doers.priority(1, buffer=9)
    for name in ("0", "5", "1", "9"):
        doer.submit(stage.task(name), priority=int(name))
    stage.end("0", "5", "1", "9")

    assert stage.wait_for(4) == ["0", "9", "5", "1"]


def test_of_one_priority_the_older_is_sooner(stage):
    doer = doers.priority(1)
    doer.submit(stage.task("first"))
    for name, age in (("young", 1), ("old", 2)):
        doer.submit(stage.task(name), created_at=seconds_ago(age))
    stage.end("first", "young", "old")

    assert stage.wait_for(3) == ["first", "old", "young"]


def test_age_takes_the_oldest_whatever_its_priority_and_label(stage):
    doer = doers.age(1)
    doer.submit(stage.task("first"))
    for age in (1, 3, 2):
        doer.submit(stage.task(str(age)), fairness=str(age), priority=-age, created_at=seconds_ago(age))
    stage.end("first", "1", "2", "3")

    assert stage.wait_for(4) == ["first", "3", "2", "1"]


def test_without_a_moment_a_task_is_as_old_as_its_submitting(stage):
    doer = doers.age(1)
    doer.submit(stage.task("first"))
    for name in "abc":
        doer.submit(stage.task(name))
    stage.end("first", "a", "b", "c")

    assert stage.wait_for(4) == ["first", "a", "b", "c"]


@pytest.mark.parametrize("make", [doers.balanced, doers.priority, doers.age])
def test_it_welcomes_what_it_can_run_and_as_much_again(stage, make):
    doer = make(2)
    assert doer.available() == 4
    doer.submit(stage.task("a"))
    doer.submit(stage.task("b"))
    assert doer.available() == 2
    doer.submit(stage.task("c"))
    assert doer.available() == 1
    stage.end("a", "b", "c")
    doer.drained()
    assert doer.available() == 4


def test_a_buffer_may_be_of_any_size(stage):
    assert doers.balanced(3, buffer=0).available() == 3
    assert doers.balanced(3, buffer=10).available() == 13


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


def test_drained_waits_for_what_waits_too(stage):
    doer = doers.balanced(1)
    for name in "abc":
        doer.submit(stage.task(name))
    stage.end("a", "b", "c")
    doer.drained()

    assert stage.started == ["a", "b", "c"]


@pytest.mark.parametrize("make", [doers.balanced, doers.priority, doers.age])
@pytest.mark.parametrize("given", [0, -1, 1.5, True, "2", None])
def test_how_many_run_is_a_whole_number_above_zero(make, given):
    with pytest.raises(ValueError, match="expected max to be a whole number, 1 or more, got: "):
        make(given)


@pytest.mark.parametrize("given", [-1, 1.5, True, "2"])
def test_a_buffer_is_a_whole_number(given):
    with pytest.raises(ValueError, match="expected buffer to be a whole number, 0 or more, got: "):
        doers.age(1, buffer=given)
