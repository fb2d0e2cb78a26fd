"""Gates that died of a member or of their timeout, and how retries revive them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_ayework import Count, NotRetryable, Status, dependency, enqueue, retry
from django_ayework.models import Group, Work
from django_ayework.testing import drain, now, time_travel
from tests.gates.works import BROKEN, flow, gate_over, labels, run, standing, step
from tests.invariants import assert_consistent

DEAD, BLOCKED = ("dead", "unsatisfiable"), ("blocked", None)
EXPIRED, OPEN = ("dead", "expired"), ("success", None)


def dead_step() -> str:
    return Work.objects.get(status="dead", type="gates.step").id


def test_retrying_the_dead_member_lets_the_workflow_carry_on():
    BROKEN.add("b")
    handle = enqueue(flow(links=[["a", "b"], ["c1", "c2"], ["d"]]))
    drain()
    assert_consistent()
    before = Group.objects.get(id=handle.id)
    assert (before.open, before.total, before.dead) == (0, 5, 3)

    BROKEN.clear()
    retry(dead_step())
    assert_consistent()
    reopened = Group.objects.get(id=handle.id)
    assert (reopened.open, reopened.total, reopened.dead, reopened.done_at) == (3, 5, 0, None)

    drain()
    assert labels()[:2] == ["a", "b"]
    assert sorted(labels()[2:4]) == ["c1", "c2"]
    assert labels()[4:] == ["d"]
    after = Group.objects.get(id=handle.id)
    assert (after.open, after.total, after.dead) == (0, 8, 0)
    assert after.done_at is not None
    assert handle.group(timeout=1) == "d"


def test_a_member_that_dies_again_closes_the_chain_again_and_can_be_retried_again():
    BROKEN.add("a")
    handle = enqueue(flow(links=[["a"], ["b"], ["c"]]))
    drain()
    for _ in range(3):
        retry(dead_step())
        drain()
        assert_consistent()
        assert Group.objects.get(id=handle.id).dead == 3
    BROKEN.clear()
    retry(dead_step())
    drain()
    assert labels() == ["a", "b", "c"]
    assert Group.objects.get(id=handle.id).dead == 0


@pytest.mark.parametrize("between", [True, False], ids=["one by one", "both, then run"])
def test_of_two_dead_members_the_second_retry_revives(between: bool):
    BROKEN.update("ab")
    gate = gate_over("ab")
    run("a", "b")
    BROKEN.clear()
    retry("a")
    assert standing(gate) == DEAD
    if between:
        drain()
        assert standing(gate) == DEAD
    retry("b")
    assert standing(gate) == BLOCKED
    drain()
    assert labels() == ["a", "b", "after"]


def test_an_all_done_link_that_ran_meanwhile_does_not_run_again():
    BROKEN.add("a")
    b = step(label="b")
    first = enqueue(dependency(["a"], [b]))
    second = enqueue(dependency([b], [step(label="report")], "all-done"))
    run("a")
    assert labels() == ["report"]
    BROKEN.clear()
    retry("a")
    drain()
    assert labels() == ["report", "a", "b"]
    assert {first.state().status, second.state().status} == {Status.SUCCESS}


def test_a_count_revives_when_it_can_be_reached_again():
    BROKEN.update("ab")
    gate = gate_over("abc", Count(2, of="success"))
    run("a", "b", "c")
    assert standing(gate) == DEAD
    BROKEN.clear()
    retry("b")
    assert standing(gate) == BLOCKED
    drain()
    assert labels() == ["c", "b", "after"]


def test_retrying_the_gate_names_the_members_to_retry():
    BROKEN.update("ab")
    gate = gate_over("abc")
    run("a", "b")
    with pytest.raises(NotRetryable, match="a, b") as refused:
        retry(gate.id)
    assert refused.value.members == ("a", "b")
    assert standing(gate) == DEAD


def test_a_gate_dead_of_bad_input_opens_once_its_input_is_mended():
    gate = gate_over("a")
    good = Work.objects.get(id=gate.id).input
    Work.objects.filter(id=gate.id).update(input="garbage")
    run("a")
    assert standing(gate) == ("dead", "bad_input")
    retry(gate.id)
    assert standing(gate) == ("dead", "bad_input")
    Work.objects.filter(id=gate.id).update(input=good)
    retry(gate.id)
    drain()
    assert labels() == ["a", "after"]


@pytest.mark.parametrize("pruned", [False, True])
def test_outcomes_are_kept_for_a_dead_gate_though_members_end_later_or_are_pruned(pruned: bool):
    BROKEN.add("b")
    gate = gate_over("abc")
    run("a", "b")
    assert standing(gate) == DEAD
    run("c")
    if pruned:
        Work.objects.filter(id="a").delete()
    BROKEN.clear()
    retry("b")
    drain()
    assert labels() == ["a", "c", "b", "after"]


# --- timeouts -------------------------------------------------------------------------------------------


def pass_time(seconds: float = 61) -> None:
    time_travel(seconds)
    drain()


def test_a_gate_past_its_timeout_dies_and_its_chain_closes_until_it_is_retried():
    gate = dependency(["a"], [step(label="b")], timeout=60)
    behind = enqueue(dependency([gate.releases[0]], [step(label="c")]))
    done = enqueue(dependency([gate.releases[0]], [step(label="done")], "all-done"))
    handle = enqueue(gate)
    pass_time(59)
    assert standing(handle) == BLOCKED
    pass_time(2)
    assert (standing(handle), standing(done)) == (EXPIRED, OPEN)
    assert standing(behind) == ("dead", "unsatisfiable")
    assert labels() == ["done"]
    assert handle.group(timeout=1) is None
    retry(handle.id)
    drain()
    assert (standing(handle), standing(behind)) == (BLOCKED, BLOCKED)
    assert timedelta(seconds=58) < handle.state().deadline - now() <= timedelta(seconds=60)
    run("a")
    assert labels() == ["done", "a", "b", "c"]


def test_a_member_that_ends_after_the_timeout_changes_nothing_but_a_retry_opens_at_once():
    gate = gate_over("a", timeout=60)
    pass_time()
    run("a")
    assert standing(gate) == EXPIRED
    assert labels() == ["a"]
    retry(gate.id)
    assert standing(gate) == OPEN
    drain()
    assert labels() == ["a", "after"]


def test_an_expired_gate_whose_member_died_names_it():
    BROKEN.add("a")
    gate = gate_over("a", timeout=60)
    pass_time()
    run("a")
    with pytest.raises(NotRetryable) as refused:
        retry(gate.id)
    assert refused.value.members == ("a",)


def test_the_condition_is_looked_at_before_the_timeout():
    """Its member had ended long before; only the recheck was late."""
    BROKEN.add("a")
    run("a")
    gate = gate_over("a", "all-done", timeout=60)
    pass_time()
    assert standing(gate) == OPEN


def test_retrying_a_member_does_not_revive_a_gate_that_expired():
    BROKEN.add("a")
    gate = gate_over("ab", timeout=60, on_unmet="wait")
    run("a")
    pass_time()
    assert standing(gate) == EXPIRED
    BROKEN.clear()
    retry("a")
    drain()
    assert standing(gate) == EXPIRED


def test_a_gate_that_a_members_retry_revives_has_its_whole_timeout_again():
    BROKEN.add("a")
    gate = gate_over("ab", timeout=60)
    run("a")
    time_travel(3600)
    BROKEN.clear()
    retry("a")
    drain()
    assert gate.state().status is Status.BLOCKED
    run("b")
    assert labels() == ["a", "b", "after"]


@pytest.mark.parametrize("option", ["expires", "deadline"])
def test_options_that_bound_a_life_bound_a_gate_and_a_retry_counts_expires_anew(option: str):
    value = 60 if option == "expires" else now() + timedelta(seconds=60)
    gate = enqueue(dependency(["a"], [step(label="after")]), **{option: value})
    pass_time()
    assert standing(gate) == EXPIRED
    retry(gate.id)
    drain()
    assert standing(gate) == (BLOCKED if option == "expires" else EXPIRED)
