"""When a gate opens."""

from __future__ import annotations

import pytest

from django_ayework import Count, Status, dependency, enqueue, enqueue_many
from django_ayework.define.ids import new_id
from django_ayework.models import Edge, Work
from django_ayework.testing import drain
from tests.gates.works import BROKEN, labels, step
from tests.invariants import assert_consistent


def statuses(*ids: str) -> list[str]:
    found = dict(Work.objects.values_list("id", "status"))
    return [found.get(id, "absent") for id in ids]


@pytest.mark.parametrize(
    ("condition", "broken", "opens"),
    [
        ("all-success", "", True),
        ("all-success", "b", False),
        ("all-done", "b", True),
        ("all-done", "abc", True),
        (Count(2), "abc", True),
        (Count(2, of="success"), "a", True),
        (Count(2, of="success"), "ab", False),
        (Count(0), "abc", True),
    ],
)
def test_a_gate_opens_when_its_condition_holds(condition, broken: str, opens: bool):
    BROKEN.update(broken)
    members = [step(label=label) for label in "abc"]
    gate = enqueue(dependency(members, [step(label="after")], condition))
    enqueue_many(members)
    drain()
    assert labels().count("after") == opens
    assert gate.state().status is (Status.SUCCESS if opens else Status.DEAD)
    assert gate.state().reason == (None if opens else "unsatisfiable")


@pytest.mark.parametrize("condition", ["all-success", "all-done", Count(0)])
def test_a_gate_that_watches_nothing_opens_at_once(condition):
    gate = enqueue(dependency([], [step(label="after")], condition))
    assert gate.state().status is Status.SUCCESS
    drain()
    assert labels() == ["after"]


def test_a_condition_no_works_can_meet_is_refused_when_built():
    with pytest.raises(ValueError, match="could never open"):
        dependency([step(label="a")], [], Count(2))
    with pytest.raises(ValueError, match="could never open"):
        dependency([], [], Count(1))


@pytest.mark.parametrize("enough", [1, 2])
def test_a_count_opens_early_and_members_that_end_later_do_not_open_it_again(enough: int):
    members = [step(label=label) for label in "abc"]
    enqueue(dependency(members, [step(label="after")], Count(enough)))
    enqueue_many(members)
    drain(limit=enough)
    assert labels() == list("abc"[:enough])
    assert Work.objects.filter(parent_id__isnull=False).count() == 1
    drain()
    assert labels().count("after") == 1


def test_a_gate_opens_in_the_transaction_that_settles_its_last_member():
    members = [step(label="a"), step(label="b")]
    gate = enqueue(dependency(members, [step(label="after")]))
    enqueue_many(members)
    drain(limit=1)
    assert gate.state().status is Status.BLOCKED
    drain(limit=1)
    assert gate.state().status is Status.SUCCESS
    assert gate.state().attempt == 0, "a gate takes no worker slot"


def test_a_gate_may_watch_ids_that_do_not_exist_yet():
    later = step(label="later")
    gate = enqueue(dependency([later.id, "order-17"], [step(label="after")]))
    drain()
    assert gate.state().status is Status.BLOCKED
    enqueue(later)
    enqueue(step(label="named"), id="order-17")
    drain()
    assert labels() == ["later", "named", "after"]


@pytest.mark.parametrize("condition", ["all-success", "all-done"])
def test_a_gate_may_watch_works_that_have_ended(condition):
    BROKEN.add("b")
    members = [enqueue(step(label=label)) for label in "ab"]
    drain()
    gate = enqueue(dependency(members, [step(label="after")], condition))
    drain()
    assert gate.state().status is (Status.DEAD if condition == "all-success" else Status.SUCCESS)
    assert labels() == (["a"] if condition == "all-success" else ["a", "after"])


def test_an_outcome_once_recorded_outlives_the_row():
    members = [step(label="a"), step(label="b")]
    enqueue(dependency(members, [step(label="after")]))
    enqueue(members[0])
    drain()
    Work.objects.filter(id=members[0].id).delete()
    enqueue(members[1])
    drain()
    assert labels() == ["a", "b", "after"]


def test_each_watched_id_counts_once():
    member = step(label="a")
    gate = dependency([member, member.id, member], [step(label="after")])
    assert gate.watched == (member.id,)
    enqueue(gate)
    enqueue(member)
    drain()
    assert labels() == ["a", "after"]


def test_one_work_may_be_watched_by_many_gates():
    member = step(label="a")
    for number in range(30):
        enqueue(dependency([member], [step(label=f"after-{number}")]))
    enqueue(member)
    drain()
    assert sorted(labels()[1:]) == sorted(f"after-{number}" for number in range(30))


def test_gates_that_watch_gates_open_in_one_go():
    first = step(label="a")
    gates = [dependency([first], [])]
    for _ in range(50):
        gates.append(dependency([gates[-1]], []))
    gates.append(dependency([gates[-1]], [step(label="after")]))
    for gate in reversed(gates):
        enqueue(gate)
    enqueue(first)
    drain(limit=1)
    assert set(statuses(*(gate.id for gate in gates))) == {"success"}
    drain()
    assert labels() == ["a", "after"]


def test_a_wide_gate_opens():
    members = [step(label=f"m{number}") for number in range(400)]
    gate = enqueue(dependency(members, [step(label="after")]))
    enqueue_many(members)
    drain()
    assert labels()[-1] == "after"
    assert gate.state().status is Status.SUCCESS
    assert Edge.objects.filter(waiter_id=gate.id, outcome="success").count() == 400


def test_ids_are_compared_by_their_bytes():
    gate = enqueue(dependency(["Order-1"], [step(label="after")]))
    enqueue(step(label="other"), id="order-1")
    drain()
    assert gate.state().status is Status.BLOCKED
    enqueue(step(label="this"), id="Order-1")
    drain()
    assert labels() == ["other", "this", "after"]


def test_a_gate_that_may_wait_waits_on_when_its_condition_cannot_hold():
    BROKEN.add("a")
    gate = enqueue(dependency(["a"], [step(label="after")], on_unmet="wait"))
    member = enqueue(step(label="a"), id="a")
    drain()
    assert (gate.state().status, member.state().status) == (Status.BLOCKED, Status.DEAD)
    assert_consistent()


def test_a_member_cancelled_counts_as_done_without_success():
    promised = step(label="never")
    BROKEN.add("a")
    outer = dependency(["a"], [promised])
    done = enqueue(dependency([promised], [step(label="done")], "all-done"))
    success = enqueue(dependency([promised], [step(label="success")]))
    enqueue(outer)
    enqueue(step(label="a"), id="a")
    drain()
    assert (done.state().status, success.state().status) == (Status.SUCCESS, Status.DEAD)
    assert labels() == ["done"]


def test_a_gate_nobody_settles_stays_blocked():
    gate = enqueue(dependency([new_id()], []))
    drain()
    assert gate.state().status is Status.BLOCKED
