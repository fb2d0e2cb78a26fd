"""Gates that can no longer open, and what closes with them."""

from __future__ import annotations

import pytest

from django_ayework import Count, Status, dependency, enqueue, get_handle
from django_ayework.models import Group, Work
from django_ayework.testing import drain
from tests.gates.works import BROKEN, flow, labels, step


def gates_of(group: str) -> list[Work]:
    return list(Work.objects.filter(group_id=group, type="@work/dependency").order_by("id"))


def test_the_first_dead_member_closes_an_all_success_gate_at_once():
    BROKEN.add("a")
    gate = enqueue(dependency(["a", "b"], [step(label="after")]))
    enqueue(step(label="a"), id="a")
    drain()
    assert gate.state().reason == "unsatisfiable"
    assert "a is dead" in gate.state().error
    assert gate.group(timeout=1) is None


def test_a_count_closes_once_too_few_members_are_left():
    BROKEN.update("ab")
    gate = enqueue(dependency([*"abc"], [step(label="after")], Count(2, of="success")))
    for id in "ab":
        assert gate.state().status is Status.BLOCKED
        enqueue(step(label=id), id=id)
        drain()
    assert gate.state().reason == "unsatisfiable"


def test_a_chain_of_links_closes_to_its_end():
    BROKEN.add("b")
    handle = enqueue(flow(links=[["a", "b"], ["c"], ["d"], ["e"]]))
    drain()
    assert labels() == ["a"]
    assert [gate.reason for gate in gates_of(handle.id)] == ["unsatisfiable"] * 3
    group = Group.objects.get(id=handle.id)
    assert (group.open, group.total, group.dead) == (0, 6, 4)
    assert handle.group(timeout=1) == "a"


def test_an_all_done_link_runs_although_the_link_before_was_never_released():
    BROKEN.add("a")
    a, b, report = step(label="a"), step(label="b"), step(label="report")
    enqueue(dependency([a], [b]))
    enqueue(dependency([b], [report], "all-done"))
    enqueue(a)
    drain()
    assert labels() == ["report"]


def test_what_a_closed_gate_would_have_released_counts_as_cancelled_for_gates_nested_in_it_too():
    BROKEN.add("a")
    innermost = step(label="innermost")
    inner = dependency(["x"], [innermost])
    watchers = [
        enqueue(dependency([inner], [], "all-done")),
        enqueue(dependency([innermost], [], "all-done")),
    ]
    enqueue(dependency(["a"], [inner]))
    enqueue(step(label="a"), id="a")
    drain()
    assert {watcher.state().status for watcher in watchers} == {Status.SUCCESS}
    assert get_handle(innermost.id).state() is None


def test_a_closed_gate_counts_as_dead_for_its_own_watchers():
    BROKEN.add("a")
    gate = dependency(["a"], [step(label="x")])
    success = enqueue(dependency([gate], []))
    done = enqueue(dependency([gate], [step(label="done")], "all-done"))
    enqueue(gate)
    enqueue(step(label="a"), id="a")
    drain()
    assert (success.state().status, done.state().status) == (Status.DEAD, Status.SUCCESS)
    assert labels() == ["done"]


def test_members_may_die_after_their_gate_did():
    BROKEN.update("ab")
    gate = enqueue(dependency([*"ab"], [step(label="after")]))
    for id in "ab":
        enqueue(step(label=id), id=id)
    drain()
    assert gate.state().status is Status.DEAD


def test_a_deep_chain_closes_in_one_transaction():
    BROKEN.add("0")
    handle = enqueue(flow(links=[[str(number)] for number in range(60)]))
    drain(limit=2)
    assert Group.objects.get(id=handle.id).open == 0
    assert len(gates_of(handle.id)) == 59


class TestTimeout:
    def test_a_gate_past_its_timeout_dies_and_its_chain_closes(self, time_travel):
        gate = dependency(["a"], [step(label="x")], timeout=60)
        watcher = enqueue(dependency([gate.releases[0]], [step(label="done")], "all-done"))
        handle = enqueue(gate)
        drain()
        time_travel(59)
        drain()
        assert handle.state().status is Status.BLOCKED
        time_travel(2)
        drain()
        assert (handle.state().status, handle.state().reason) == (Status.DEAD, "expired")
        assert watcher.state().status is Status.SUCCESS
        assert labels() == ["done"]
        assert handle.group(timeout=1) is None

    def test_a_member_that_ends_after_the_timeout_changes_nothing(self, time_travel):
        handle = enqueue(dependency(["a"], [step(label="x")], timeout=60))
        time_travel(61)
        drain()
        enqueue(step(label="a"), id="a")
        drain()
        assert handle.state().reason == "expired"
        assert labels() == ["a"]

    def test_the_condition_is_looked_at_before_the_timeout(self, time_travel):
        """Its member had ended long before; only the second look was late."""
        enqueue(step(label="a"), id="a")
        drain()
        handle = enqueue(dependency(["a"], [step(label="x")], timeout=60))
        time_travel(61)
        drain()
        assert handle.state().status is Status.SUCCESS

    @pytest.mark.parametrize("option", ["expires", "deadline"])
    def test_options_that_bound_a_life_bound_a_gate_too(self, option: str, time_travel):
        from datetime import timedelta

        from django_ayework.testing import now

        value = 60 if option == "expires" else now() + timedelta(seconds=60)
        handle = enqueue(dependency(["a"], [step(label="x")]), **{option: value})
        time_travel(61)
        drain()
        assert handle.state().reason == "expired"
