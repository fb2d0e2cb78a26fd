"""When a gate opens."""

from __future__ import annotations

import pytest

from django_ayework import Count, Status, dependency, enqueue, enqueue_many, get_handle, retry
from django_ayework.models import Edge, Group, Work
from django_ayework.testing import drain
from tests.gates.works import BROKEN, flow, gate_over, labels, run, standing, step
from tests.invariants import assert_consistent

UNSATISFIABLE = ("dead", "unsatisfiable")
OPEN = ("success", None)
#: A condition over three works, the works of them that die, and whether a gate opens.
CONDITIONS = [
    ("all-success", "", True),
    ("all-success", "b", False),
    ("all-done", "b", True),
    ("all-done", "abc", True),
    (Count(2), "abc", True),
    (Count(2, of="success"), "a", True),
    (Count(2, of="success"), "ab", False),
    (Count(0), "abc", True),
]


@pytest.mark.parametrize("gate_first", [True, False], ids=["gate first", "works first"])
@pytest.mark.parametrize(("condition", "broken", "opens"), CONDITIONS)
def test_a_gate_opens_when_its_condition_holds(condition, broken: str, opens: bool, gate_first: bool):
    BROKEN.update(broken)
    members = [step(label=label) for label in "abc"]
    if gate_first:
        gate = gate_over(members, condition)
    enqueue_many(members)
    drain()
    if not gate_first:
        gate = gate_over(members, condition)
        drain()
    assert labels().count("after") == opens
    assert standing(gate) == (OPEN if opens else UNSATISFIABLE)


@pytest.mark.parametrize("condition", ["all-success", "all-done", Count(0)])
def test_a_gate_that_watches_nothing_opens_at_once(condition):
    gate = gate_over([], condition)
    assert gate.state().status is Status.SUCCESS
    drain()
    assert labels() == ["after"]
    assert gate.group(timeout=1) == "after"


@pytest.mark.parametrize("enough", [1, 2])
def test_a_count_opens_early_and_members_that_end_later_do_not_open_it_again(enough: int):
    members = [step(label=label) for label in "abc"]
    gate_over(members, Count(enough))
    enqueue_many(members)
    drain(limit=enough)
    assert labels() == list("abc"[:enough])
    assert Work.objects.filter(parent_id__isnull=False).count() == 1
    drain()
    assert labels().count("after") == 1


def test_a_gate_opens_in_the_transaction_that_settles_its_last_member():
    members = [step(label="a"), step(label="b")]
    gate = gate_over([members[0], members[0].id, *members])
    assert Edge.objects.count() == 2, "each id counts once"
    enqueue_many(members)
    drain(limit=1)
    assert gate.state().status is Status.BLOCKED
    drain(limit=1)
    assert gate.state().status is Status.SUCCESS
    assert gate.state().attempt == 0, "a gate takes no worker slot"


def test_a_gate_may_watch_ids_that_do_not_exist_yet_compared_by_their_bytes():
    later = step(label="later")
    gate = gate_over([later.id, "Order-1"])
    drain()
    assert gate.state().status is Status.BLOCKED
    enqueue(later)
    run("order-1")
    assert gate.state().status is Status.BLOCKED
    run("Order-1")
    assert labels() == ["later", "order-1", "Order-1", "after"]


def test_gates_that_watch_gates_open_in_one_go():
    gates = [dependency(["a"], [])]
    for _ in range(50):
        gates.append(dependency([gates[-1]], []))
    gates.append(dependency([gates[-1]], [step(label="after")]))
    handles = enqueue_many(reversed(gates))
    enqueue(step(label="a"), id="a")
    drain(limit=1)
    assert {standing(handle) for handle in handles} == {OPEN}
    drain()
    assert labels() == ["a", "after"]


def test_a_gate_that_may_wait_waits_on_when_its_condition_cannot_hold():
    BROKEN.add("a")
    gate = gate_over("a", on_unmet="wait")
    run("a")
    assert standing(gate) == ("blocked", None)
    assert_consistent()
    BROKEN.clear()
    retry("a")
    drain()
    assert standing(gate) == OPEN
    assert labels() == ["a", "after"]


# --- a gate that can no longer open ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("on", "condition", "broken"),
    [("ab", "all-success", "a"), ("abc", Count(2, of="success"), "ab")],
    ids=["all", "count"],
)
def test_a_gate_closes_once_too_few_members_are_left_and_is_not_changed_by_later_ends(on, condition, broken):
    BROKEN.update(on)
    gate = gate_over(on, condition)
    for id in broken:
        assert gate.state().status is Status.BLOCKED
        run(id)
    assert standing(gate) == UNSATISFIABLE
    assert f"{broken[0]} is dead" in gate.state().error
    assert gate.group(timeout=1) is None
    run(*set(on).difference(broken))
    assert standing(gate) == UNSATISFIABLE


def test_a_chain_of_links_closes_to_its_end_in_one_transaction():
    BROKEN.add("1")
    handle = enqueue(flow(links=[["0", "1"], *([str(number)] for number in range(2, 61))]))
    drain(limit=3)
    assert labels() == ["0"]
    gates = Work.objects.filter(group_id=handle.id, type="@work/dependency")
    assert [gate.reason for gate in gates] == ["unsatisfiable"] * 59
    group = Group.objects.get(id=handle.id)
    assert (group.open, group.total, group.dead) == (0, 62, 60)
    assert handle.group(timeout=1) == "0"


def test_a_closed_gate_counts_as_dead_and_what_it_held_as_cancelled_nested_gates_too():
    BROKEN.add("a")
    innermost, held = step(label="innermost"), step(label="held")
    inner = dependency(["x"], [innermost])
    gate = dependency(["a"], [inner, held])
    done = [enqueue(dependency([one], [], "all-done")) for one in (gate, inner, innermost)]
    report = enqueue(dependency([held], [step(label="report")], "all-done"))
    success = [enqueue(dependency([one], [])) for one in (gate, held)]
    enqueue(gate)
    run("a")
    assert {standing(handle) for handle in (*done, report)} == {OPEN}
    assert {standing(handle) for handle in success} == {UNSATISFIABLE}
    assert labels() == ["report"]
    assert get_handle(innermost.id).state() is None
