"""What a gate releases, and the parent and the group of it."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from django_ayework import Context, NotEncodable, Retry, Status, dependency, enqueue, get_handle, retry, work
from django_ayework.models import Edge, Group, Waiter, Work
from django_ayework.testing import drain, time_travel
from tests.gates.works import BROKEN, RAN, flow, labels, run, standing, step


@work(name="gates.nested")
def nested(ctx: Context):
    """A fan-out whose first link contains a fan-out with a link of its own."""
    inner = ctx.queue([step(label="inner")]).next([step(label="inner-next")])
    return ctx.queue([step(label="a"), inner]).next([step(label="last")])


@work(name="gates.parent_of")
def parent_of(ctx: Context, label: str):
    return ctx.queue([step(label=label)], delay=3600)


@work(name="gates.grandchildren")
def grandchildren(ctx: Context):
    return ctx.queue([parent_of(label="grandchild")]).next([step(label="next")])


@work(name="gates.with_options")
def with_options(ctx: Context):
    followers = [step(label="next")]
    first = ctx.queue([step(label="a")], priority=2)
    return first.next(followers, priority=7, retry=Retry(attempts=9), queue="slow")


@work(name="gates.late_step", options=lambda label: {"delay": 60})
def late_step(ctx: Context, label: str):
    RAN.append((label, ctx.dependents))


def test_released_works_have_the_gate_as_parent_and_what_it_waited_for_in_order():
    members = [step(label=label) for label in "cab"]
    gate = enqueue(dependency(members, [step(label="x"), step(label="y")]))
    for member in sorted(members, key=lambda member: member.id, reverse=True):
        enqueue(member)
    drain()
    ids = tuple(member.id for member in members)
    assert [entry for entry in RAN if entry[0] in "xy"] == [("x", ids), ("y", ids)]
    released = Work.objects.filter(parent_id=gate.id)
    assert {work.group_id for work in released} == {gate.id}
    assert {get_handle(work.id).state().dependents for work in released} == {ids}


def test_links_run_one_after_the_other():
    handle = enqueue(flow(links=[["a1", "a2"], ["b1", "b2"], ["c"]]))
    drain()
    ran = labels()
    assert (sorted(ran[:2]), sorted(ran[2:4]), ran[4:]) == (["a1", "a2"], ["b1", "b2"], ["c"])
    assert [dependents for _, dependents in RAN[:2]] == [(), ()]
    group = Group.objects.get(id=handle.id)
    assert (group.open, group.total, group.dead) == (0, 1 + 5 + 2, 0)


def test_a_link_waits_for_works_of_nested_instructions_too():
    enqueue(nested())
    drain()
    ran = labels()
    assert ran[-1] == "last"
    assert ran.index("inner") < ran.index("inner-next") < ran.index("last")


def test_a_link_does_not_wait_for_grandchildren():
    handle = enqueue(grandchildren())
    drain()
    assert labels() == ["next"]
    assert Group.objects.get(id=handle.id).open == 1


def test_options_of_a_link_apply_to_its_works():
    enqueue(with_options())
    drain(limit=2)
    follower = Work.objects.get(queue="slow")
    assert follower.priority == 7
    assert get_handle(follower.id).state().retry.attempts == 9
    drain()
    assert labels() == ["a", "next"]


def test_a_delayed_release_starts_its_delay_when_the_gate_opens():
    gate = enqueue(dependency(["a"], [late_step(label="after")]))
    time_travel(3600)
    run("a")
    released = Work.objects.get(parent_id=gate.id)
    assert released.queued_at == gate.state().ended_at
    assert released.run_at == released.queued_at + timedelta(seconds=60)
    assert labels() == ["a"]
    time_travel(61)
    drain()
    assert RAN[-1] == ("after", ("a",))


def test_a_gate_can_release_gates_which_keep_their_conditions_and_timeouts():
    BROKEN.add("broken")
    run("early")
    late = step(label="late")
    nested = [
        dependency([late], [step(label="innermost")]),
        dependency([], [step(label="at once")]),
        dependency(["early"], [step(label="after early")]),
        dependency(["broken", "b"], [step(label="all done")], "all-done", timeout=60),
        dependency(["c"], [step(label="never")], timeout=60),
    ]
    outer = enqueue(dependency(["a"], [step(label="x"), *nested]))
    run("a")
    assert sorted(labels()) == ["a", "after early", "at once", "early", "x"]
    assert standing(get_handle(nested[0].id)) == ("blocked", None)
    enqueue(late)
    run("broken", "b")
    assert sorted(labels()[-4:]) == ["all done", "b", "innermost", "late"]
    time_travel(61)
    drain()
    assert standing(get_handle(nested[-1].id)) == ("dead", "expired")
    assert Group.objects.get(id=outer.id).total == 11


def test_one_gate_queued_twice_is_one_gate():
    gate = dependency(["a"], [step(label="after")])
    assert [enqueue(gate).deduplicated, enqueue(gate).deduplicated] == [False, True]
    assert (Waiter.objects.count(), Edge.objects.count()) == (1, 1)
    run("a")
    assert enqueue(gate).deduplicated
    drain()
    assert labels() == ["a", "after"]


def test_one_work_released_by_two_gates_runs_once():
    shared = step(label="shared")
    gates = [enqueue(dependency(["a"], [shared])) for _ in range(2)]
    run("a")
    assert labels() == ["a", "shared"]
    assert {gate.state().status for gate in gates} == {Status.SUCCESS}


def test_a_link_after_a_work_that_had_been_queued_before_goes_on():
    known = step(label="known")
    enqueue(known)
    drain()

    @work(name="gates.requeues")
    def requeues(ctx: Context):
        return ctx.queue([step(label="a")]).next([known]).next([step(label="last")])

    handle = enqueue(requeues())
    drain()
    assert labels() == ["known", "a", "last"]
    assert Group.objects.get(id=handle.id).open == 0


def test_the_end_and_the_revival_of_a_gate_do_not_count_for_a_work_that_was_queued_by_itself():
    BROKEN.add("a")
    mine = step(label="mine")
    other = enqueue(dependency([mine, "z"], [step(label="after")]))
    enqueue(mine)
    gate = enqueue(dependency(["a"], [mine]))
    enqueue(step(label="a"), id="a", priority=9)
    drain(limit=1)
    assert (standing(gate), standing(other)) == (("dead", "unsatisfiable"), ("blocked", None))
    drain()
    BROKEN.clear()
    retry("a")
    run("z")
    assert standing(other) == ("success", None)
    assert labels() == ["mine", "a", "z", "after"]


# --- releases that cannot be read, stored or run here ---------------------------------------------------


def input_with(gate: str, /, **changes) -> str:
    plain = json.loads(Work.objects.get(id=gate).input)
    plain["queue"][0].update(changes)
    return json.dumps(plain)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda gate: "garbage",
        lambda gate: "[]",
        lambda gate: "null",
        lambda gate: '{"queue": 5}',
        lambda gate: '{"queue": [5]}',
        lambda gate: '{"queue": [{}]}',
        lambda gate: input_with(gate, options={"dealy": 5}),
        lambda gate: input_with(gate, options={"priority": "high"}),
        lambda gate: input_with(gate, options={"run_at": "yesterday"}),
        lambda gate: input_with(gate, id=5),
        lambda gate: input_with(gate, id="x" * 100),
        lambda gate: input_with(gate, type=None),
        lambda gate: input_with(gate, type="x" * 300),
        lambda gate: input_with(gate, input={"label": "x"}),
        lambda gate: input_with(gate, input="\x00"),
        lambda gate: input_with(gate, input="\ud800"),
        lambda gate: input_with(gate, gate={"watched": 5}),
    ],
)
def test_a_gate_whose_works_cannot_be_read_dies_alone(spoil):
    gate = enqueue(dependency(["a"], [step(label="x")]))
    Work.objects.filter(id=gate.id).update(input=spoil(gate.id))
    enqueue(step(label="a"), id="a")
    drain()
    assert labels() == ["a"]
    assert (gate.state().status, gate.state().reason) == (Status.DEAD, "bad_input")
    assert gate.group(timeout=1) is None


def test_one_unreadable_work_closes_the_links_behind_its_gate():
    handle = enqueue(flow(links=[["a"], ["b"], ["c"]]))
    drain(limit=1)
    gate = Work.objects.filter(status="blocked").earliest("id")
    plain = json.loads(gate.input)
    plain["queue"][0]["options"] = {"dealy": 1}
    Work.objects.filter(id=gate.id).update(input=json.dumps(plain))
    drain()
    assert labels() == ["a"]
    assert Group.objects.get(id=handle.id).open == 0
    dead = Work.objects.filter(status="dead").order_by("reason")
    assert [work.reason for work in dead] == ["bad_input", "unsatisfiable"]


def test_a_release_of_a_type_unknown_here_is_queued_all_the_same():
    gate = enqueue(dependency(["a"], [step(label="x")]))
    Work.objects.filter(id=gate.id).update(input=input_with(gate.id, type="gone.work"))
    enqueue(step(label="a"), id="a")
    drain()
    assert gate.state().status is Status.SUCCESS
    assert Work.objects.get(type="gone.work").status == "scheduled"


class Spoilt:
    """A codec whose texts not every database takes."""

    def __init__(self, text: str) -> None:
        self.text = text

    def encode(self, value: object) -> str:
        return self.text

    def decode(self, text: str) -> object:
        return {}


@pytest.mark.parametrize("text", ["\x00", "\ud800"])
def test_what_no_database_takes_is_refused_when_the_gate_is_queued(text: str, undeclared):
    """Later it would fail the settlement of the work that the gate waits for."""
    spoilt = work(name="gates.spoilt", codec=Spoilt(text))(lambda: None)
    with pytest.raises(NotEncodable, match=r"gates\.spoilt"):
        enqueue(dependency(["a"], [spoilt()]))
    assert not Work.objects.exists()
