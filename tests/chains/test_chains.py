"""A chain: each work hands over to the next as it ends; completing it without a worker, and its state."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_ayework import Context, Retry, cancel, dependency, enqueue, enqueue_many, get_handle, retry, work
from django_ayework.api import complete, completing
from django_ayework.errors import AlreadyCompleted, InvalidOption, WaitInTransaction, WorkFailed, WorkNotFound
from django_ayework.models import Group, Work
from django_ayework.store.database import clock
from django_ayework.testing import drain
from tests.app.works import add, fail
from tests.chains.kit import SEEN, count, gather, onward, steps_of
from tests.flow.kit import ONCE
from tests.marks import on_sqlite

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("consistent")]


@work(name="t.chain.fragile", retry=ONCE)
def fragile(ctx: Context, broken: bool = True):
    if broken:
        raise ValueError("no bread")
    return ctx.continue_with(add(a=5, b=5))


@work(name="t.chain.fan")
def fan(ctx: Context):
    return ctx.queue([add(a=1, b=1), ctx.continue_with(add(a=2, b=2), priority=7)])


QUEUED_BEFORE = add(a=7, b=7)


def indexes(chain: Any) -> list[int]:
    return [step.chain_index for step in chain.steps]


@pytest.mark.parametrize("beside", [[], [add(a=1, b=1)]], ids=["alone", "in a group"])
def test_a_chain_has_the_id_of_its_first_work_and_counts_its_steps(beside):
    SEEN.clear()
    [handle, *_] = enqueue_many([count(n=0, until=3), *beside], together=True)
    assert Work.objects.get(id=handle.id).chain_id is None, "it is a chain of one"
    drain(limit=2)
    with pytest.raises(WaitInTransaction):
        handle.chain()
    drain()
    steps = steps_of(handle.id)
    assert [step.chain_index for step in steps] == [0, 1, 2, 3]
    assert {step.chain_id for step in steps} == {handle.chain_id} == {handle.id}
    of_chain = set(Work.objects.exclude(chain_id=None).values_list("type", "chain_id"))
    assert of_chain == {("t.chain.count", handle.id)}
    assert [(step.id, handle.id, n) for n, step in enumerate(steps)] == SEEN
    assert [step.parent for step in steps] == [None, *(step.id for step in steps[:-1])]
    assert [handle.state().chain_index, get_handle(steps[2].id).state().chain_index] == [0, 2]
    assert handle.result() is None, "a work that continued has none of its own"
    assert (handle.chain(), handle.group(), Group.objects.get().total) == (3, 3, 4 + len(beside))
    step, same = get_handle(steps[2].id), get_handle(steps[2].id)
    assert (step.chain(), step.chain_id, same.group_id) == (3, handle.id, handle.id)


def test_handing_over_takes_no_statement_more_than_queueing_another_work():
    def statements(request) -> int:
        handle = enqueue(request)
        with CaptureQueriesContext(connection) as seen, completing(handle.id) as ctx:
            made = add(a=1, b=1)
            ctx.continue_with(made) if request.type == "t.chain.count" else ctx.queue([made])
        return len(seen)

    clock.synchronise()  # done once a minute, so it is not counted here
    assert statements(count(n=0, until=9)) <= statements(fan())


def test_a_continuation_may_stand_beside_other_works_and_a_gate_watches_the_step():
    handle = enqueue(fan())
    gate = enqueue(dependency(on=[handle], queue=[add(a=1, b=1)]))
    drain(limit=1)
    assert gate.state().status == "success"
    drain()
    assert handle.chain() == 4
    assert [step.type for step in steps_of(handle.id)] == ["t.chain.fan", "shop.add"]
    assert [step.priority for step in steps_of(handle.id)] == [0, 7], "options are the next work's"
    assert sorted(Work.objects.filter(group_id=handle.id).values_list("priority", flat=True)) == [0, 0, 7]


def test_a_chain_that_dies_in_the_middle_names_the_dead_step_and_goes_on_after_its_retry():
    start = work(name="t.chain.start")(lambda ctx: ctx.continue_with(fragile()))
    handle = enqueue(start())
    drain(raises=False)
    with pytest.raises(WorkFailed, match=r"t\.chain\.fragile") as failure:
        handle.chain()
    assert failure.value.id == steps_of(handle.id)[1].id
    retry(failure.value.id, input={"broken": False})
    drain()
    assert handle.chain() == 10
    assert [step.chain_index for step in steps_of(handle.id)] == [0, 1, 2]


#: Handlers whose continuation cannot be, and what is said.
WRONG: dict[str, tuple[Any, str]] = {
    "twice": (
        lambda ctx: [ctx.continue_with(add(a=n, b=n)) for n in (1, 2)][-1],
        "InvalidInstruction: the handler of 't.chain.wrong' called ctx.continue_with(…) twice;",
    ),
    "queued before": (lambda ctx: ctx.continue_with(QUEUED_BEFORE), "was queued before"),
    "gate": (
        lambda ctx: ctx.continue_with(dependency(on=[ctx.id], queue=[add(a=1, b=1)])),
        "TypeError: expected ctx.continue_with",
    ),
    "its own chain as a blocker": (
        lambda ctx: ctx.continue_with(gather(), blockers=[ctx.chain_id]),
        "with its own chain as a blocker",
    ),
    "unknown blocker": (lambda ctx: ctx.queue([gather()], blockers=["nobody"]), "got: 'nobody'"),
}


@on_sqlite
@pytest.mark.parametrize(("handler", "error"), WRONG.values(), ids=WRONG)
def test_a_continuation_that_cannot_be_fails_the_attempt(handler, error):
    enqueue(QUEUED_BEFORE)
    handle = enqueue(work(name="t.chain.wrong", retry=ONCE)(handler)())
    drain(raises=False)
    assert handle.state().status == "dead"
    assert error in handle.state().error
    assert Work.objects.count() == 2


# --- completing without a worker: the id of a chain stands for its current step -------------------------


def test_completing_a_chain_acts_on_the_step_it_is_at():
    handle = enqueue(count(n=0, until=9))
    drain(limit=2)
    with transaction.atomic():
        for index, n in ((2, 7), (3, 8)):
            with completing(handle.chain_id) as ctx:
                assert (ctx.id, ctx.chain_id) == (steps_of(handle.id)[index].id, handle.id)
                ctx.continue_with(count(n=n, until=9))
        complete(handle.chain_id, "enough")
    assert handle.chain() == "enough"
    assert [step.status for step in steps_of(handle.id)] == ["success"] * 5


def test_the_blocked_step_of_a_chain_is_completed_and_what_the_chain_blocks_runs():
    blocker = enqueue(add(a=1, b=1), delay=60)
    handle = enqueue(onward(of=[blocker.id]))
    behind = enqueue(gather(), blockers=[handle])
    drain()
    assert steps_of(handle.id)[-1].status == "blocked"
    complete(handle.id, "done")
    drain()
    assert behind.result() == ["done"]


def test_a_chain_or_step_that_has_ended_is_not_completed_again():
    handle = enqueue(count(n=0, until=2))
    drain()
    _, second, last = steps_of(handle.id)
    with pytest.raises(AlreadyCompleted) as error:
        complete(handle.id)
    assert str(error.value) == (
        f"the chain {handle.id} has ended already: its last step {last.id} (t.chain.count) is success, "
        "so it cannot be completed."
    )
    assert error.value.id == handle.id
    for step in (second, last):
        with pytest.raises(AlreadyCompleted, match=f"the work {step.id} .* has ended already: it is success"):
            complete(step.id)
    with pytest.raises(WorkNotFound) as missing:
        complete("nobody")
    assert str(missing.value) == "no work has the id 'nobody', so it cannot be completed."


def test_a_chain_without_its_first_work_is_completed_all_the_same_and_shows_what_is_left():
    handle = enqueue(count(n=0, until=9))
    drain(limit=2)
    Work.objects.filter(id=handle.id).delete()
    complete(handle.id, "enough")
    chain = handle.chain_state()
    assert (chain.id, chain.type, chain.input, chain.queued_at) == (handle.id, None, None, None)
    assert (indexes(chain), chain.length, chain.output) == ([1, 2], 3, "enough")
    assert [step.status for step in chain.steps] == ["success"] * 2
    Work.objects.all().delete()
    Group.objects.all().delete()  # it still counts the deleted work


def test_completing_a_work_takes_no_statement_more_for_chains():
    handle = enqueue(add(a=1, b=1))
    with CaptureQueriesContext(connection) as seen, completing(handle.id):
        pass
    read = [query["sql"] for query in seen if query["sql"].startswith("SELECT")]
    assert len(read) == 2, "what it waits for, and its row"


# --- the state of a chain -------------------------------------------------------------------------------


def test_it_shows_the_entry_the_steps_and_the_status_and_output_of_the_step_it_is_at():
    handle, other = enqueue(count(n=0, until=2)), enqueue(count(n=0, until=2))
    assert (handle.chain_state().status, handle.chain_state().length) == ("pending", 1)
    drain(limit=2)
    chain = handle.chain_state()
    assert [step.status for step in chain.steps] == ["success", "pending"]
    assert (chain.status, chain.output, chain.ended_at) == ("pending", None, None)
    cancel(other.chain_state().steps[-1].id)
    assert (other.chain_state().status, other.chain_state().ended_at is None) == ("cancelled", False)
    drain()
    chain = handle.chain_state()
    assert (chain.id, chain.type, chain.input) == (handle.id, "t.chain.count", {"n": 0, "until": 2})
    assert (chain.status, chain.output, chain.error, chain.length) == ("success", 2, None, 3)
    assert [step.result for step in chain.steps] == [None, None, 2]
    assert chain.steps == tuple(get_handle(step.id).state() for step in chain.steps)
    assert (chain.queued_at, chain.ended_at) == (chain.steps[0].queued_at, chain.steps[-1].ended_at)
    assert chain.next_start is None
    assert all(get_handle(step.id).chain_state() == chain for step in chain.steps)
    assert async_to_sync(handle.achain_state)(start=1, limit=1) == handle.chain_state(start=1, limit=1)


def test_a_chain_of_one_and_a_chain_of_none():
    dead, done = enqueue(fail(), retry=Retry(attempts=1)), enqueue(add(a=1, b=2))
    gate = enqueue(dependency(on=["x"], queue=[add(a=1, b=1)]))
    drain(raises=False)
    chain = dead.chain_state()
    assert (chain.status, chain.error, chain.output) == ("dead", dead.state().error, None)
    assert chain.error
    chain = done.chain_state()
    assert (chain.type, chain.input, chain.output) == ("shop.add", {"a": 1, "b": 2}, 3)
    assert (chain.steps, chain.length) == ((done.state(),), 1)
    assert (gate.chain_state().input, gate.chain_state().status) == (None, "blocked")
    assert get_handle("nobody").chain_state() is None
    Work.objects.update(input="no json")
    assert done.chain_state().input == "no json", "it cannot be read"


def test_the_steps_come_page_by_page_in_a_few_statements():
    handle = enqueue(count(n=0, until=30))
    drain()
    with CaptureQueriesContext(connection) as seen:
        whole = handle.chain_state()
    assert (len(whole.steps), len(seen)) == (31, 2)
    with CaptureQueriesContext(connection) as seen:
        assert indexes(handle.chain_state(start=20, limit=5)) == [20, 21, 22, 23, 24]
    assert len(seen) == 4
    pages, start = [], 0
    while start is not None:
        page = handle.chain_state(start=start, limit=12)
        assert (page.status, page.output, page.length, page.input) == ("success", 30, 31, whole.input)
        pages.append(page)
        start = page.next_start
    assert [len(page.steps) for page in pages] == [12, 12, 7]
    assert tuple(step for page in pages for step in page.steps) == whole.steps
    assert handle.chain_state(start=31).steps == ()
    assert handle.chain_state(limit=31).next_start is None


def test_a_page_that_cannot_be_is_refused():
    for page, message in (
        ({"limit": 0}, "expected limit to be a whole number, from 1 to 1000, got: 0."),
        ({"limit": 1001}, "expected limit to be a whole number, from 1 to 1000, got: 1001."),
        ({"start": -1}, "expected start to be a whole number, 0 or more, got: -1."),
        ({"start": "x"}, "expected start to be a whole number, 0 or more, got: 'x'."),
    ):
        with pytest.raises(InvalidOption) as error:
            get_handle("any").chain_state(**page)
        assert str(error.value) == message


def test_the_steps_show_what_they_wait_or_had_waited_for():
    blocker, member = enqueue(add(a=1, b=1)), enqueue(add(a=2, b=2))
    first = onward(of=[blocker.id])
    enqueue(dependency(on=[member], queue=[first]))
    drain()
    chain = get_handle(first.id).chain_state()
    assert [step.dependents for step in chain.steps] == [(member.id,), ()]
    assert [step.blockers for step in chain.steps] == [(), (blocker.id,)]
    assert chain.steps == tuple(get_handle(step.id).state() for step in chain.steps)
