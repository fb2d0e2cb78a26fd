"""Running a success again: as a new work, linked to the old one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_ayework import Context, NotRetryable, Retry, dependency, enqueue, retry, work
from django_ayework.models import Work
from django_ayework.testing import drain, now
from django_ayework.testing.factories import WorkFactory
from tests.app.works import add, fail
from tests.invariants import assert_consistent

pytestmark = pytest.mark.django_db


@work(name="t.again.seen", expires=600, timeout=5, retry=Retry(attempts=7))
def seen(ctx: Context, n: int = 1) -> list[Any]:
    return [n, ctx.parent, ctx.dependents, ctx.blockers]


@work(name="t.again.step")
def step(ctx: Context, n: int) -> Any:
    return ctx.continue_with(step(n=n - 1)) if n else ctx.result("end")


def test_a_success_is_run_again_as_a_new_work_whose_parent_it_is(time_travel: Any) -> None:
    old = enqueue(seen(n=3), priority=4, fairness="a", queue="default")
    drain()
    before = Work.objects.filter(id=old.id).values().get()
    time_travel(3600)

    new = retry(old.id, again=True)

    assert new.id != old.id
    assert Work.objects.filter(id=old.id).values().get() == before
    state = new.state()
    assert (state.status, state.parent, state.attempt, state.result) == ("pending", old.id, 0, None)
    assert (state.priority, state.fairness, state.timeout, state.retry.attempts) == (4, "a", 5, 7)
    assert (state.group_id, state.chain_id) == (new.id, new.id)
    assert state.deadline - now() > timedelta(seconds=590), "expires counts anew"
    drain()
    assert new.result() == [3, old.id, (), ()]
    assert old.result() == [3, None, (), ()]
    assert_consistent()


def test_another_input_can_be_given() -> None:
    old = enqueue(seen(n=3))
    drain()
    new = retry(old.id, {"n": 4}, again=True)
    drain()
    assert (old.result()[0], new.result()[0]) == (3, 4)


def test_without_again_a_success_is_refused_and_the_message_says_how() -> None:
    old = enqueue(seen())
    drain()
    with pytest.raises(NotRetryable, match=rf"as a new work, call retry\('{old.id}', again=True\)"):
        retry(old.id)
    assert Work.objects.count() == 1


def test_a_dead_work_is_retried_itself() -> None:
    dead = enqueue(fail(), retry=Retry(attempts=1))
    drain(raises=False)
    assert retry(dead.id, again=True) == dead
    assert dead.state().status == "pending"


@pytest.mark.parametrize("status", ["pending", "scheduled", "running", "blocked"])
def test_a_work_that_has_not_ended_is_refused(status: str) -> None:
    row = WorkFactory(status=status)
    with pytest.raises(NotRetryable) as raised:
        retry(row.id, again=True)
    assert str(raised.value) == (
        f"expected the work {row.id} to be dead, cancelled or success, but it is {status}; "
        "wait for its end, or cancel it first."
    )


def test_what_a_gate_released_has_its_dependents_again() -> None:
    watched = enqueue(add(a=1, b=2))
    join = seen()
    enqueue(dependency(on=[watched], queue=[join]))
    drain()
    for id in (join.id, retry(join.id, again=True).id):
        drain()
        again = retry(id, again=True)
        drain()
        assert again.state().dependents == (watched.id,)
        assert again.result()[1] == id
        assert again.result()[2] == (watched.id,)


def test_a_work_with_blockers_has_their_results_again() -> None:
    blocker = enqueue(add(a=1, b=2))
    old = enqueue(seen(), blockers=[blocker])
    drain()
    new = retry(old.id, again=True)
    drain()
    assert new.state().blockers == (blocker.id,)
    assert new.result()[3] == (3,)
    assert_consistent()


def test_a_gate_is_not_opened_again() -> None:
    gate = enqueue(dependency(on=[enqueue(add(a=1, b=2))], queue=[seen()]))
    drain()
    for again, text in ((True, "is a gate that has opened"), (False, "without success can be retried.$")):
        with pytest.raises(NotRetryable, match=text):
            retry(gate.id, again=again)


def test_a_step_begins_a_chain_of_its_own() -> None:
    old = enqueue(step(n=1))
    drain()
    last = Work.objects.get(chain_id=old.id, chain_index=1)
    new = retry(last.id, again=True)
    drain()
    assert (new.chain(), new.state().chain_id, new.state().chain_index) == ("end", new.id, 0)
    assert Work.objects.filter(chain_id=old.id).count() == 2


def test_a_unit_that_has_a_live_work_is_refused() -> None:
    old = enqueue(seen(), unit="u")
    drain()
    new = retry(old.id, again=True)
    assert new.state().unit == "u"
    with pytest.raises(NotRetryable, match="to have no live work"):
        retry(old.id, again=True)


def test_a_rollback_takes_it_back() -> None:
    from django.db import transaction

    old = enqueue(seen())
    drain()
    with pytest.raises(RuntimeError), transaction.atomic():
        retry(old.id, again=True)
        raise RuntimeError
    assert Work.objects.count() == 1
