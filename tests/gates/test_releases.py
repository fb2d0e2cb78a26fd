"""What a gate releases, and to whom it belongs."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import transaction

from django_ayework import Context, Retry, Status, dependency, enqueue, get_handle, work
from django_ayework.models import Edge, Group, Waiter, Work
from django_ayework.testing import drain
from tests.gates.works import BROKEN, RAN, flow, labels, step


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


@work(name="gates.with_gate")
def with_gate(ctx: Context):
    watched = step(label="watched")
    return ctx.queue([watched, dependency([watched], [step(label="after")])])


def test_released_works_name_the_gate_as_parent_and_what_it_waited_for_in_order():
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


def test_works_queued_by_a_handler_have_no_dependents():
    enqueue(flow(links=[["a"]]))
    drain()
    assert RAN == [("a", ())]


def test_the_value_of_the_gates_group_is_that_of_what_it_releases():
    gate = enqueue(dependency([], [step(label="value")]))
    drain()
    assert gate.group(timeout=1) == "value"


def test_links_run_one_after_the_other():
    handle = enqueue(flow(links=[["a1", "a2"], ["b1", "b2"], ["c"]]))
    drain()
    ran = labels()
    assert sorted(ran[:2]) == ["a1", "a2"]
    assert sorted(ran[2:4]) == ["b1", "b2"]
    assert ran[4:] == ["c"]
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


def test_a_delayed_release_starts_its_delay_when_the_gate_opens(time_travel):
    gate = enqueue(dependency(["a"], [late_step(label="after")]))
    time_travel(3600)
    enqueue(step(label="a"), id="a")
    drain()
    released = Work.objects.get(parent_id=gate.id)
    assert released.queued_at == gate.state().ended_at
    assert released.run_at == released.queued_at + timedelta(seconds=60)
    assert labels() == ["a"]
    time_travel(61)
    drain()
    assert RAN[-1] == ("after", ("a",))


def test_a_gate_can_be_queued_by_a_handler():
    handle = enqueue(with_gate())
    drain()
    assert labels() == ["watched", "after"]
    assert Group.objects.get(id=handle.id).total == 4


def test_a_gate_can_release_gates():
    late = step(label="late")
    inner = dependency([late], [step(label="innermost")])
    empty = dependency([], [step(label="at once")])
    outer = enqueue(dependency(["a"], [step(label="x"), inner, empty]))
    enqueue(step(label="a"), id="a")
    drain()
    assert sorted(labels()) == ["a", "at once", "x"]
    assert get_handle(inner.id).state().status is Status.BLOCKED
    enqueue(late)
    drain()
    assert labels()[-1] == "innermost"
    assert Group.objects.get(id=outer.id).total == 6


def test_a_nested_gate_watches_what_had_ended_before_it_was_released():
    enqueue(step(label="early"), id="early")
    drain()
    enqueue(dependency(["a"], [dependency(["early"], [step(label="after")])]))
    enqueue(step(label="a"), id="a")
    drain()
    assert labels() == ["early", "a", "after"]


def test_a_nested_gate_keeps_its_condition_and_timeout(time_travel):
    BROKEN.add("a")
    inner = dependency(["a", "b"], [step(label="after")], "all-done", timeout=60)
    waiting = dependency(["c"], [step(label="never")], timeout=60)
    enqueue(dependency([], [inner, waiting]))
    enqueue(step(label="a"), id="a")
    enqueue(step(label="b"), id="b")
    drain()
    assert labels() == ["b", "after"]
    time_travel(61)
    drain()
    assert get_handle(waiting.id).state().reason == "expired"


def test_one_gate_queued_twice_is_one_gate():
    gate = dependency(["a"], [step(label="after")])
    assert [enqueue(gate).deduplicated, enqueue(gate).deduplicated] == [False, True]
    assert (Waiter.objects.count(), Edge.objects.count()) == (1, 1)
    enqueue(step(label="a"), id="a")
    drain()
    assert labels() == ["a", "after"]
    assert enqueue(gate).deduplicated
    drain()
    assert labels() == ["a", "after"]


def test_one_work_released_by_two_gates_runs_once():
    shared = step(label="shared")
    gates = [enqueue(dependency(["a"], [shared])) for _ in range(2)]
    enqueue(step(label="a"), id="a")
    drain()
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


def test_the_death_of_a_gate_says_nothing_about_a_work_queued_by_somebody_else():
    BROKEN.add("a")
    mine = step(label="mine")
    other = enqueue(dependency([mine], [step(label="after")]))
    enqueue(mine)
    gate = enqueue(dependency(["a"], [mine]))
    enqueue(step(label="a"), id="a", priority=9)
    drain(limit=1)
    assert gate.state().status is Status.DEAD
    assert other.state().status is Status.BLOCKED
    drain()
    assert labels() == ["mine", "after"]


def test_reviving_a_gate_says_nothing_about_a_work_queued_by_somebody_else():
    from django_ayework import retry

    BROKEN.add("a")
    mine = step(label="mine")
    other = enqueue(dependency([mine, "z"], [step(label="after")]))
    enqueue(mine)
    enqueue(dependency(["a"], [mine]))
    enqueue(step(label="a"), id="a")
    drain()
    BROKEN.clear()
    retry("a")
    drain()
    enqueue(step(label="z"), id="z")
    drain()
    assert other.state().status is Status.SUCCESS
    assert labels() == ["mine", "a", "z", "after"]


def test_a_gate_of_a_transaction_rolled_back_leaves_nothing():
    with pytest.raises(RuntimeError), transaction.atomic():
        enqueue(dependency(["a"], [step(label="after")]))
        enqueue(dependency([], [step(label="at once")]))
        raise RuntimeError
    assert not any(model.objects.exists() for model in (Work, Waiter, Edge, Group))
    enqueue(step(label="a"), id="a")
    drain()
    assert labels() == ["a"]


def test_a_gate_that_opens_inside_a_transaction_rolled_back_is_undone():
    enqueue(step(label="a"), id="a")
    drain()
    with pytest.raises(RuntimeError), transaction.atomic():
        enqueue(dependency([], [step(label="after")]))
        assert drain().ran == 1
        raise RuntimeError
    assert Work.objects.count() == 1
    drain()
    assert labels().count("after") == 1
