"""A chain: each work hands over to the next as it ends."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from django_ayework import (
    Context,
    Retry,
    WaitInTransaction,
    WorkFailed,
    completing,
    dependency,
    enqueue,
    enqueue_many,
    get_handle,
    retry,
    work,
)
from django_ayework.errors import InvalidInstruction
from django_ayework.models import Group, Work
from django_ayework.testing import drain, perform
from django_ayework.testing.factories import WorkFactory
from tests.app.works import add
from tests.chains.kit import SEEN, count, steps_of

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("consistent")]


@work(name="t.chain.choose")
def choose(ctx: Context, large: bool):
    """A branch."""
    return ctx.continue_with(add(a=100, b=1) if large else add(a=1, b=1), priority=7)


@work(name="t.chain.fragile", retry=Retry(attempts=1))
def fragile(ctx: Context, broken: bool = True):
    if broken:
        raise ValueError("no bread")
    return ctx.continue_with(add(a=5, b=5))


@work(name="t.chain.start")
def start(ctx: Context, broken: bool):
    return ctx.continue_with(fragile(broken=broken))


@work(name="t.chain.fan")
def fan(ctx: Context):
    return ctx.queue([add(a=1, b=1), ctx.continue_with(add(a=2, b=2))])


@work(name="t.chain.twice", retry=Retry(attempts=1))
def twice(ctx: Context):
    ctx.continue_with(add(a=1, b=1))
    return ctx.continue_with(add(a=2, b=2))


@work(name="t.chain.reuse", retry=Retry(attempts=1))
def reuse(ctx: Context):
    return ctx.continue_with(QUEUED_BEFORE)


@work(name="t.chain.to_gate", retry=Retry(attempts=1))
def to_gate(ctx: Context):
    return ctx.continue_with(dependency(on=[ctx.id], queue=[add(a=1, b=1)]))


QUEUED_BEFORE = add(a=7, b=7)


def test_a_chain_has_the_id_of_its_first_work_and_counts_its_steps():
    SEEN.clear()
    handle = enqueue(count(n=0, until=3))
    drain(limit=2)
    with pytest.raises(WaitInTransaction):
        handle.chain()
    drain()
    steps = steps_of(handle.id)
    assert [step.chain_index for step in steps] == [0, 1, 2, 3]
    assert {step.chain_id for step in steps} == {handle.chain_id} == {handle.id}
    assert [(step.id, handle.id, n) for n, step in enumerate(steps)] == SEEN
    assert [step.parent for step in steps] == [None, *(step.id for step in steps[:-1])]
    assert [handle.state().chain_index, get_handle(steps[2].id).state().chain_index] == [0, 2]
    assert handle.chain() == 3
    assert handle.result() is None, "a work that continued has none of its own"
    assert handle.group() == 3
    assert Group.objects.get().total == 4
    step, same = get_handle(steps[2].id), get_handle(steps[2].id)
    assert (step.chain(), step.chain_id, same.group_id) == (3, handle.id, handle.id)


@pytest.mark.parametrize("beside", [[], [add(a=1, b=1)]], ids=["alone", "in a group"])
def test_the_first_work_has_its_chain_id_from_when_it_hands_over(beside):
    [handle, *_] = enqueue_many([count(n=0, until=2), *beside], together=True)
    assert Work.objects.get(id=handle.id).chain_id is None, "it is a chain of one"
    drain()
    chain = Work.objects.filter(chain_id=handle.id).order_by("chain_index")
    assert list(chain.values_list("chain_index", flat=True)) == [0, 1, 2]
    assert chain[0].id == handle.id == handle.state().chain_id
    assert not Work.objects.filter(type="shop.add").exclude(chain_id=None).exists()


def test_handing_over_takes_no_statement_more_than_queueing_another_work():
    def statements(request) -> int:
        handle = enqueue(request)
        with CaptureQueriesContext(connection) as seen, completing(handle.id) as ctx:
            made = add(a=1, b=1)
            ctx.continue_with(made) if request.type == "t.chain.count" else ctx.queue([made])
        return len(seen)

    assert statements(count(n=0, until=9)) <= statements(fan())


@pytest.mark.parametrize(("large", "result"), [(True, 101), (False, 2)])
def test_a_work_chooses_how_the_chain_goes_on(large, result):
    handle = enqueue(choose(large=large))
    drain()
    assert handle.chain() == result
    assert Work.objects.get(type="shop.add").priority == 7, "options are the next work's"


def test_a_continuation_may_stand_beside_other_works():
    handle = enqueue(fan())
    drain()
    assert handle.chain() == 4
    assert [step.type for step in steps_of(handle.id)] == ["t.chain.fan", "shop.add"]
    assert Work.objects.count() == 3


def test_a_chain_that_dies_in_the_middle_names_the_dead_step_and_goes_on_after_its_retry():
    handle = enqueue(start(broken=True))
    drain(raises=False)
    with pytest.raises(WorkFailed, match=r"t\.chain\.fragile") as failure:
        handle.chain()
    assert failure.value.id == steps_of(handle.id)[1].id
    retry(failure.value.id, input={"broken": False})
    drain()
    assert handle.chain() == 10
    assert [step.chain_index for step in steps_of(handle.id)] == [0, 1, 2]


def test_a_gate_watches_the_step_and_not_the_chain():
    handle = enqueue(count(n=0, until=3))
    gate = enqueue(dependency(on=[handle], queue=[add(a=1, b=1)]))
    drain(limit=1)
    assert gate.state().status == "success"


def test_continuing_twice_fails_the_attempt():
    handle = enqueue(twice())
    drain(raises=False)
    state = handle.state()
    assert (state.status, state.error.partition(";")[0]) == (
        "dead",
        "InvalidInstruction: the handler of 't.chain.twice' called ctx.continue_with(…) twice",
    )
    assert Work.objects.count() == 1


def test_a_continuation_that_was_queued_before_fails_the_attempt():
    enqueue(QUEUED_BEFORE)
    handle = enqueue(reuse())
    drain(raises=False)
    assert "was queued before" in handle.state().error
    assert Work.objects.count() == 2


def test_a_gate_cannot_continue_a_chain():
    error = perform(to_gate()).error
    assert isinstance(error, TypeError)
    assert "got a gate" in str(error)


def test_a_continuation_that_is_not_returned_fails_the_attempt():
    @work(name="t.chain.forgotten")
    def forgotten(ctx: Context):
        ctx.continue_with(add(a=1, b=1))

    error = perform(forgotten()).error
    assert isinstance(error, InvalidInstruction)
    assert "return ctx.continue_with(…)" in str(error)


def test_a_chain_can_be_walked_without_a_worker():
    SEEN.clear()
    handle = enqueue(count(n=0, until=9), delay=60)
    with completing(handle.id) as ctx:
        ctx.continue_with(count(n=8, until=9), delay=60)
    assert Work.objects.filter(chain_id=handle.id).count() == 2
    with completing(steps_of(handle.id)[-1].id) as ctx:
        ctx.result("enough")
    assert (handle.chain(), SEEN) == ("enough", [])


def test_no_step_has_two_continuations_whatever_happens():
    WorkFactory(chain_id="c", chain_index=1)
    with pytest.raises(IntegrityError), transaction.atomic():
        WorkFactory(chain_id="c", chain_index=1)
    WorkFactory.create_batch(2, chain_id=None)
    Work.objects.all().delete()
