"""Retrying by hand: what can be retried, with which input, what begins anew; and running a success again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction

from django_ayework import (
    Context,
    NotRetryable,
    Retry,
    aretry,
    cancel,
    complete,
    dependency,
    enqueue,
    retry,
    work,
)
from django_ayework.errors import UnknownWorkType, WorkNotFound
from django_ayework.models import DeadLetter, Gate, Waiter, Work
from django_ayework.testing import drain, now, time_travel
from django_ayework.testing.factories import WorkFactory
from tests.app.models import Order
from tests.app.works import add, fail
from tests.flow.kit import Oops, Opaque, stated
from tests.invariants import assert_consistent
from tests.marks import each_database

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("consistent")]


@work(name="t.bad.once", retry=Retry(attempts=1), expires=60)
def once(n: int = 1) -> int:
    if n < 5:
        raise ValueError(f"{n} is too small")
    return n


@work(name="t.again.seen", expires=600, timeout=5, retry=Retry(attempts=7))
def seen(ctx: Context, n: int = 1) -> list[Any]:
    return [n, ctx.parent, ctx.dependents, ctx.blockers]


@work(name="t.again.step")
def step(ctx: Context, n: int) -> Any:
    return ctx.continue_with(step(n=n - 1)) if n else ctx.result("end")


@pytest.fixture
def dead():
    """A work that has died, and can be retried with another input."""
    handle = enqueue(once(n=1))
    drain(raises=False)
    return handle


def test_dead_letters_are_dead_works_alone_and_gates_are_gates_alone(dead):
    live, gate = enqueue(once(n=7)), enqueue(dependency(on=["unknown"], queue=[once(n=8)]))
    assert [letter.pk for letter in DeadLetter.objects.filter(type="t.bad.once")] == [dead.id]
    assert [each.pk for each in Gate.objects.all()] == [gate.id]
    for letter in DeadLetter.objects.all():
        retry(letter.pk)
    assert (dead.state().status, live.state().status) == ("pending", "pending")
    assert not DeadLetter.objects.exists()


@pytest.mark.parametrize("status", ["pending", "scheduled", "running", "blocked"])
def test_a_work_that_has_not_ended_or_is_not_there_cannot_be_retried(status):
    row = WorkFactory(status=status)
    for again, message in (
        (True, f"dead, cancelled or success, but it is {status}; wait for its end, or cancel it first."),
        (False, f"dead or cancelled, but it is {status}; only ended works without success can be retried."),
    ):
        with pytest.raises(NotRetryable) as raised:
            retry(row.id, again=again)
        assert str(raised.value) == f"expected the work {row.id} to be {message}"
        assert raised.value.id == row.id
        assert stated(row.id).status == status
    Work.objects.all().delete()
    with pytest.raises(
        WorkNotFound, match="no work has the id 'nowhere', so it cannot be retried"
    ) as missing:
        retry("nowhere")
    assert missing.value.id == "nowhere"


def test_a_retry_gives_a_full_budget_and_remembers_the_last_error():
    handle = enqueue(fail(), retry=Retry(attempts=2))
    for _ in range(2):
        drain(raises=False)
        time_travel(60)
    assert handle.state().status == "dead"
    assert retry(handle.id) == handle
    state = handle.state()
    assert (state.status, state.attempt, state.reason, state.error) == ("pending", 0, None, None)
    assert state.last_error == "RuntimeError: no luck"
    assert (state.ended_at, state.completed_by) == (None, None)
    assert drain(raises=False).retried == 1


def test_a_retry_may_bring_a_new_input_which_is_checked(dead):
    for input, error in (
        ({"m": 1}, "got an unexpected keyword argument 'm'"),
        ({"n": Opaque()}, r"input\['n'\]"),
    ):
        with pytest.raises(TypeError, match=error):
            retry(dead.id, input)
        assert (Work.objects.get().input, dead.state().status) == ('{"n":1}', "dead")
    assert retry(dead.id, {"n": 2}) == dead
    drain(raises=False)
    assert dead.state().error == "ValueError: 2 is too small"
    assert async_to_sync(aretry)(dead.id, {"n": 7}) == dead
    drain()
    assert dead.result(timeout=0) == 7
    row = WorkFactory(type="t.bad.gone", status="dead", reason="aborted")
    with pytest.raises(UnknownWorkType):
        retry(row.id, {"a": 1})
    assert retry(row.id).id == row.id


@pytest.mark.parametrize("bound", ["expires", "deadline"])
def test_expires_counts_anew_after_a_retry_and_a_deadline_stays(bound):
    moment = now() + timedelta(seconds=30)
    handle = enqueue(once(n=9), **({"deadline": moment} if bound == "deadline" else {}))
    time_travel(61)
    drain()
    assert handle.state().reason == "expired"
    time_travel(600)
    retry(handle.id)
    left = (handle.state().deadline - now()).total_seconds()
    assert handle.state().deadline == moment if bound == "deadline" else abs(left - 60) < 1
    drain()
    expected = (None, "expired") if bound == "deadline" else (9, None)
    assert (handle.state().result, handle.state().reason) == expected


# --- again=True -----------------------------------------------------------------------------------------


def test_a_success_is_run_again_as_a_new_work_whose_parent_it_is():
    order = Order.objects.create(reference="A1")
    old = enqueue(seen(n=3), priority=4, fairness="a", queue="default", about=order)
    drain()
    before = Work.objects.filter(id=old.id).values().get()
    time_travel(3600)
    hint = "as a new work, give again=True, or --again in the command"
    with pytest.raises(NotRetryable, match=rf"it is success; only ended works without success .*{hint}"):
        retry(old.id)
    with pytest.raises(Oops), transaction.atomic():
        retry(old.id, again=True)
        raise Oops
    assert Work.objects.count() == 1
    new = retry(old.id, again=True)
    assert new.id != old.id
    assert Work.objects.filter(id=old.id).values().get() == before
    state = new.state()
    assert (state.status, state.parent, state.attempt, state.result) == ("pending", old.id, 0, None)
    assert (state.priority, state.fairness, state.timeout, state.retry.attempts) == (4, "a", 5, 7)
    assert (state.group_id, state.chain_id) == (new.id, new.id)
    assert state.deadline - now() > timedelta(seconds=590), "expires counts anew"
    assert state.start_at == state.queued_at <= now()
    row = Work.objects.get(id=new.id, about_type="shop.order")
    assert row.about_id == str(order.pk)
    assert row.sort_key >= before["sort_key"] > "", "it waits in turn, as the success did"
    another = retry(old.id, {"n": 4}, again=True)
    drain()
    assert (old.result(), new.result()) == ([3, None, (), ()], [3, old.id, (), ()])
    assert another.result()[0] == 4


@pytest.mark.parametrize("status", ["dead", "cancelled"])
def test_a_work_without_success_is_retried_itself(status):
    row = WorkFactory(status=status, reason="aborted" if status == "dead" else "")
    assert retry(row.id, again=True).id == row.id
    assert stated(row.id).status == "pending"
    assert drain().succeeded == 1


def test_it_has_its_dependents_and_the_results_of_its_blockers_again_and_a_gate_is_not_opened_again():
    watched = enqueue(add(a=1, b=2))
    join, blocked = seen(), enqueue(seen(), blockers=[watched])
    gate = enqueue(dependency(on=[watched], queue=[join]))
    drain()
    for id in (join.id, retry(join.id, again=True).id):
        drain()
        again = retry(id, again=True)
        drain()
        assert again.state().dependents == (watched.id,)
        assert again.result()[1:3] == [id, (watched.id,)]
    again = retry(blocked.id, again=True)
    drain()
    assert (again.state().blockers, again.result()[3]) == ((watched.id,), (3,))
    Work.objects.filter(id=watched.id).delete()  # as its retention is over
    again = retry(blocked.id, again=True)
    with pytest.raises(WorkNotFound, match=f"{watched.id} was deleted, as its retention is over"):
        drain()
    assert again.state().blockers == (watched.id,)
    unmet = enqueue(seen(), blockers=[enqueue(seen(), delay=3600)])
    complete(unmet.id)
    again = retry(unmet.id, again=True)
    drain()
    assert again.state().status == "blocked", "one that was completed by hand has not waited"
    assert_consistent()
    for again, text in (
        (True, "is a gate that has opened"),
        (False, r"without success can be retried\.(\n|$)"),
    ):
        with pytest.raises(NotRetryable, match=text):
            retry(gate.id, again=again)


def test_a_gate_takes_no_input_and_one_whose_waiter_is_gone_cannot_wait_again():
    gate = enqueue(dependency(on=["x"], queue=[add(a=1, b=2)]))
    cancel(gate.id)
    with pytest.raises(TypeError, match=f"expected no input for the gate {gate.id}: the works it releases"):
        retry(gate.id, {"a": 3})
    Waiter.objects.filter(work_id=gate.id).delete()
    with pytest.raises(NotRetryable, match=f"the gate {gate.id} has lost its edges; queue a new one"):
        retry(gate.id)
    assert gate.state().status == "cancelled"


def test_a_step_begins_a_chain_of_its_own_and_a_unit_that_has_a_live_work_is_refused():
    old, unit = enqueue(step(n=1)), enqueue(seen(), unit="u")
    drain()
    new = retry(Work.objects.get(chain_id=old.id, chain_index=1).id, again=True)
    assert retry(unit.id, again=True).state().unit == "u"
    with pytest.raises(NotRetryable, match="to have no live work"):
        retry(unit.id, again=True)
    drain()
    assert (new.chain(), new.state().chain_id, new.state().chain_index) == ("end", new.id, 0)
    assert Work.objects.filter(chain_id=old.id).count() == 2


@each_database
def test_a_cancelled_work_waits_for_its_start_again_if_that_is_to_come():
    later, soon, tried = (enqueue(fail(), delay=delay) for delay in (3600, 60, 0))
    drain(raises=False)
    assert tried.state().status == "scheduled"
    for handle in (later, soon, tried):
        cancel(handle.id)
    assert retry(tried.id).state().status == "pending", "it had begun"
    time_travel(120)
    states = [retry(handle.id).state() for handle in (later, soon)]
    assert [state.status for state in states] == ["scheduled", "pending"]
    assert states[0].start_at - now() < timedelta(seconds=3500)
