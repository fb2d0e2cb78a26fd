"""Fix the step, press retry, and the workflow carries on."""

from __future__ import annotations

import pytest

from django_ayework import Count, NotRetryable, Status, dependency, enqueue, retry
from django_ayework.models import Group, Work
from django_ayework.testing import drain
from tests.gates.works import BROKEN, flow, labels, step
from tests.invariants import assert_consistent


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


def test_of_two_dead_members_the_second_retry_revives():
    BROKEN.update("ab")
    gate = enqueue(dependency([*"ab"], [step(label="after")]))
    for id in "ab":
        enqueue(step(label=id), id=id)
    drain()
    BROKEN.clear()
    retry("a")
    assert gate.state().status is Status.DEAD
    drain()
    assert gate.state().status is Status.DEAD
    retry("b")
    assert gate.state().status is Status.BLOCKED
    drain()
    assert labels() == ["a", "b", "after"]


def test_both_dead_members_may_be_retried_before_either_runs():
    BROKEN.update("ab")
    gate = enqueue(dependency([*"ab"], [step(label="after")]))
    for id in "ab":
        enqueue(step(label=id), id=id)
    drain()
    BROKEN.clear()
    retry("a")
    retry("b")
    assert gate.state().status is Status.BLOCKED
    drain()
    assert labels() == ["a", "b", "after"]


def test_an_all_done_link_that_ran_meanwhile_does_not_run_again():
    BROKEN.add("a")
    a, b = step(label="a"), step(label="b")
    first = enqueue(dependency([a], [b]))
    second = enqueue(dependency([b], [step(label="report")], "all-done"))
    handle = enqueue(a)
    drain()
    assert labels() == ["report"]
    BROKEN.clear()
    retry(handle.id)
    drain()
    assert labels() == ["report", "a", "b"]
    assert {first.state().status, second.state().status} == {Status.SUCCESS}


def test_a_count_revives_when_it_can_be_reached_again():
    BROKEN.update("ab")
    gate = enqueue(dependency([*"abc"], [step(label="after")], Count(2, of="success")))
    for id in "abc":
        enqueue(step(label=id), id=id)
    drain()
    assert gate.state().reason == "unsatisfiable"
    BROKEN.clear()
    retry("b")
    assert gate.state().status is Status.BLOCKED
    drain()
    assert labels() == ["c", "b", "after"]


def test_a_gate_that_waits_on_is_opened_by_the_retry():
    BROKEN.add("a")
    gate = enqueue(dependency([*"a"], [step(label="after")], on_unmet="wait"))
    enqueue(step(label="a"), id="a")
    drain()
    BROKEN.clear()
    retry("a")
    drain()
    assert gate.state().status is Status.SUCCESS
    assert labels() == ["a", "after"]


def test_a_member_may_be_retried_with_another_input():
    BROKEN.add("bad")
    enqueue(dependency(["a"], [step(label="after")]))
    enqueue(step(label="bad"), id="a")
    drain()
    retry("a", {"label": "good"})
    drain()
    assert labels() == ["good", "after"]


def test_retrying_the_gate_names_the_members_to_retry():
    BROKEN.update("ab")
    gate = enqueue(dependency([*"abc"], [step(label="after")]))
    for id in "ab":
        enqueue(step(label=id), id=id)
    drain()
    with pytest.raises(NotRetryable, match="a, b") as refused:
        retry(gate.id)
    assert refused.value.members == ("a", "b")
    assert gate.state().status is Status.DEAD


@pytest.mark.parametrize("status", ["blocked", "success"])
def test_only_a_dead_gate_can_be_retried(status: str):
    gate = enqueue(dependency(["a"] if status == "blocked" else [], [step(label="after")]))
    with pytest.raises(NotRetryable, match=f"but it is {status}"):
        retry(gate.id)
    drain()


def test_a_gate_dead_of_bad_input_opens_once_its_input_is_mended():
    gate = enqueue(dependency(["a"], [step(label="after")]))
    good = Work.objects.get(id=gate.id).input
    Work.objects.filter(id=gate.id).update(input="garbage")
    enqueue(step(label="a"), id="a")
    drain()
    assert gate.state().reason == "bad_input"
    Work.objects.filter(id=gate.id).update(input=good)
    retry(gate.id)
    drain()
    assert labels() == ["a", "after"]


def test_a_gate_dead_of_bad_input_retried_as_it_is_dies_again():
    gate = enqueue(dependency(["a"], [step(label="after")]))
    Work.objects.filter(id=gate.id).update(input="garbage")
    enqueue(step(label="a"), id="a")
    drain()
    retry(gate.id)
    assert gate.state().reason == "bad_input"


def test_a_retry_rolled_back_leaves_the_chain_closed():
    from django.db import transaction

    BROKEN.add("a")
    handle = enqueue(flow(links=[["a"], ["b"]]))
    drain()
    with pytest.raises(RuntimeError), transaction.atomic():
        retry(dead_step())
        raise RuntimeError
    assert_consistent()
    assert Group.objects.get(id=handle.id).open == 0


def test_an_outcome_is_kept_for_a_dead_gate_whose_other_members_end_later():
    BROKEN.add("a")
    gate = enqueue(dependency([*"abc"], [step(label="after")]))
    enqueue(step(label="a"), id="a")
    drain()
    assert gate.state().status is Status.DEAD
    for id in "bc":
        enqueue(step(label=id), id=id)
    drain()
    BROKEN.clear()
    retry("a")
    drain()
    assert labels() == ["b", "c", "a", "after"]


def test_a_revived_gate_remembers_members_pruned_meanwhile():
    BROKEN.add("b")
    enqueue(dependency([*"ab"], [step(label="after")]))
    for id in "ab":
        enqueue(step(label=id), id=id)
    drain()
    Work.objects.filter(id="a").delete()
    BROKEN.clear()
    retry("b")
    drain()
    assert labels() == ["a", "b", "after"]
