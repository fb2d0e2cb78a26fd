"""Works and gates that wait for one another: refused where one call queues them, else explained."""

from __future__ import annotations

import pytest

from django_ayework import (
    Context,
    Count,
    cancel,
    complete,
    dependency,
    enqueue,
    enqueue_many,
    explain,
    get_handle,
    work,
)
from django_ayework.errors import InvalidInstruction
from django_ayework.flow import explain as explaining
from django_ayework.flow.circles import require_no_circle
from django_ayework.flow.new_works import build_new_works
from django_ayework.models import Work
from django_ayework.testing import drain
from tests.flow.kit import ONCE, standing
from tests.gates.works import labels, step

pytestmark = pytest.mark.django_db

A, B, C = (step(label=label) for label in "abc")


@work(name="gates.turn")
def turn(ctx: Context, onto: str):
    """Go on once a chain has succeeded."""
    return ctx.continue_with(step(label=ctx.id), blockers=[onto])


def gates(*pairs, condition="all-success"):
    return [dependency(on, queue, condition) for on, queue in pairs]


def codes(id):
    return [str(reason.code) for reason in explain(id).reasons]


def circle_in(id):
    return next(reason.facts["works"] for reason in explain(id).reasons if reason.code == "circle")


@pytest.mark.parametrize(
    "requests",
    [
        [A, *gates(([A, B], [B]))],
        gates(([A, B], [B]), condition="all-done"),
        gates(([A, B, C], [B, C]), condition=Count(2)),
        gates(([A], [B]), ([B], [C]), ([C], [A])),
        gates(([A], gates(([B], [A])))),
        [A, *gates(([C], [B]), ([A, B], [dependency([], [C])]))],
    ],
    ids=["own release", "all done", "too many own", "three gates", "nested gate", "nested release"],
)
def test_gates_that_wait_for_what_only_they_queue_are_refused_and_nothing_is_queued(requests):
    with pytest.raises(
        InvalidInstruction, match=r"works that wait for one another: .+ → .+Take one of them out"
    ):
        enqueue_many(requests)
    assert not Work.objects.exists()


def test_the_message_names_the_works_of_the_circle_and_no_others():
    [first, second] = gates(([A, B], [C]), ([C], [B]))
    with pytest.raises(InvalidInstruction) as refusal:
        enqueue_many([A, first, second, *gates(([C], [step(label="behind")]))])
    text = str(refusal.value)
    assert f"gates.step {B.id} → gate {second.id} → gates.step {C.id}" in text
    assert "behind" not in text
    assert A.id not in text


def test_a_long_circle_is_shortened():
    many = [step(label=str(number)) for number in range(30)]
    pairs = zip(many, [*many[1:], many[0]], strict=True)
    with pytest.raises(InvalidInstruction, match=r"→ … 51 more → (gates\.step|gate) "):
        enqueue_many(gates(*(([one], [other]) for one, other in pairs)))


def test_a_gate_that_watches_its_own_id_is_refused():
    with pytest.raises(InvalidInstruction, match="gate mine → gate mine;"):
        enqueue(dependency(["mine"], [step(label="x")]), id="mine")


def test_gates_that_may_open_are_no_circle():
    one, two, three = (step(label=label) for label in ("one", "two", "three"))
    enqueue(two)
    enqueue_many([one, *gates(([one, two], [two])), *gates(([one, three], [three]), condition=Count(1))])
    queue_itself = work(name="gates.queue_itself")(lambda ctx: ctx.queue([one]).next([one]).next(C))
    enqueue(queue_itself())
    drain()
    assert sorted(labels()) == ["c", "one", "three", "two"]


def test_a_gate_opens_that_watches_a_work_that_has_ended_and_that_another_gate_would_queue():
    enqueue(A)
    drain()
    [watching, queueing] = enqueue_many(gates(([A], [B]), ([C], [A])))
    drain()
    assert (labels(), standing(queueing)[0]) == (["a", "b"], "blocked")
    assert standing(watching)[0] == "success"


def test_a_nested_gate_opens_that_watches_a_work_that_was_queued_before_and_that_it_would_queue():
    enqueue_many([A, *gates(([B], gates(([A], [A, C]))))])
    drain()
    enqueue(B)
    drain()
    assert labels() == ["a", "b", "c"]


def test_ten_thousand_gates_are_looked_through_in_any_order():
    many = [step(label=str(number)) for number in range(10_001)]
    chain = gates(*(([many[n]], [many[n + 1]]) for n in range(10_000)))
    require_no_circle(build_new_works(chain))
    require_no_circle(build_new_works(chain[::-1]))


@pytest.mark.parametrize(
    "queue",
    [
        lambda ctx: ctx.queue([A, ctx.queue([B], blockers=[A])], blockers=[B]),
        lambda ctx: ctx.queue([
            ctx.queue([A], blockers=[ctx.chain_id]), ctx.continue_with(B, blockers=[A])
        ]),
        lambda ctx: ctx.queue([A], blockers=[B]).next([C]).next([B]),
    ],
    ids=["each other", "the end of its chain", "what a gate queues"],
)  # fmt: skip
def test_a_handler_that_queues_works_that_wait_for_one_another_fails(queue):
    handle = enqueue(work(name="gates.circular")(queue)(), retry=ONCE)
    drain(raises=False)
    assert (standing(handle), Work.objects.count()) == (("dead", "exhausted"), 1)
    error = handle.state().error
    assert "works that wait for one another" in error or "chains that exist" in error


def test_chains_that_wait_for_one_another_are_explained_until_one_is_completed():
    ids = ["one", "two", "three"]
    for id, onto in zip(ids, ["two", "three", "one"], strict=True):
        enqueue(turn(onto=onto), id=id)
    drain()
    steps = [get_handle(id).chain_state().steps[-1].id for id in ids]
    assert [circle_in(id) for id in steps] == [steps, steps[1:] + steps[:1], steps[2:] + steps[:2]]
    assert f"It waits for itself: {' → '.join([*steps, steps[0]])}. Each of these" in str(explain(steps[0]))
    behind = enqueue(step(label="behind"), blockers=["one"])
    drain()
    assert codes(behind.id) == ["waits_for_works"]
    complete(steps[1], "by hand")
    drain()
    assert get_handle("one").chain(timeout=0) == "one"
    assert behind.state().status == "success"


def test_a_circle_that_a_count_leaves_out_is_none():
    for id, onto in (("one", "two"), ("two", "gate")):
        enqueue(turn(onto=onto), id=id)
    enqueue(dependency(["else", "one", "two"], [step(label="x")], Count(3)), id="gate")
    drain()
    steps = {each.chain_id: each.id for each in Work.objects.filter(status="blocked", type="gates.step")}
    assert codes("gate") == ["waits_for_works", "not_queued"]
    enqueue(dependency([steps["one"], "else"], [step(label="y")], Count(1)), id="counts")
    drain()
    assert codes("counts") == ["waits_for_works"]


def test_a_long_row_of_blocked_works_takes_few_statements(django_assert_max_num_queries):
    last = enqueue(step(label="0"), delay=60)
    for number in range(explaining.MOST_STEPS * 2):
        last = enqueue(step(label=str(number)), blockers=[last])
    drain()
    with django_assert_max_num_queries(explaining.MOST_STEPS * 4 + 12):
        explain(last.id)


def test_a_gate_that_waits_for_what_does_not_exist_says_what_to_do():
    gate = enqueue(dependency(["nothing"], [step(label="after")]))
    text = "It opens only once nothing is enqueued and has ended. If that was pruned or rolled back, "
    assert text in str(explain(gate.id))
    expiring = enqueue(dependency(["nothing"], [C], timeout=60))
    drain()
    assert codes(expiring.id) == ["waits_for_works", "deadline"]
    cancel(gate.id)
