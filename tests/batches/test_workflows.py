"""Works of batches in groups, gates and chains are works like any other."""

from __future__ import annotations

import pytest

from django_ayework import Context, cancel, complete, dependency, enqueue, enqueue_many, work
from tests.batches.works import three

pytestmark = pytest.mark.django_db


@work(name="batches.sum")
def sum_of(ctx: Context) -> int:
    return len([status for status in ctx.states(ctx.dependents) if status == "success"])


@work(name="batches.fan_out")
def fan_out(ctx: Context, numbers: list[int]):
    return ctx.queue([three(number) for number in numbers]).next([sum_of()])


@work(name="batches.hand_over")
def hand_over(ctx: Context, number: int):
    return ctx.continue_with(three(number))


def test_a_handler_fans_out_to_a_batch_and_joins_it(drain, stage):
    handle = enqueue(fan_out(numbers=[1, 2, 3, 4, 5]))
    drain()
    assert stage.runs == [[1, 2, 3], [4, 5]]
    assert handle.group() == 5


def test_a_gate_waits_for_works_of_a_batch_and_releases_some(drain, stage):
    watched = enqueue_many([three(number) for number in range(2)])
    gate = enqueue(dependency(watched, [three(10), three(11)]))
    drain()
    assert gate.group() == 22
    assert stage.runs == [[0, 1], [10, 11]]


def test_a_work_of_a_batch_that_dies_takes_its_gate_along(drain, stage):
    stage.act = lambda items: [LookupError("gone") if item.input == 1 else 0 for item in items]
    watched = enqueue_many([three(number) for number in range(3)])
    gate = enqueue(dependency(watched, [sum_of()]))
    drain(raises=False)
    assert (gate.state().status, gate.state().reason) == ("dead", "unsatisfiable")


def test_a_chain_goes_on_with_a_work_of_a_batch(drain, stage):
    handle = enqueue(hand_over(number=4))
    blocked = enqueue(three(2), blockers=[handle])
    drain()
    assert handle.chain() == 8
    assert stage.runs == [[4], [2]]
    assert blocked.result() == 4


def test_units_can_be_output_to_a_batch(drain, stage):
    @work(name="t.batches.crawl", then="batches.three")
    def crawl(ctx: Context) -> None:
        ctx.output({"a": {"n": 1}, "b": {"n": 2}})

    stage.act = lambda items: [item.input["n"] for item in items]
    enqueue(crawl())
    assert drain().succeeded == 3
    assert stage.runs == [[{"n": 1}, {"n": 2}]]


def test_one_of_them_can_be_cancelled_and_one_completed(drain, stage):
    kept, cancelled, completed = enqueue_many([three(number) for number in range(3)])
    cancel(cancelled.id)
    complete(completed.id, "by hand")
    drain()
    assert stage.runs == [[0]]
    assert (kept.result(), completed.result(), cancelled.state().status) == (0, "by hand", "cancelled")
