"""A work that waits for chains to succeed, and is given their results."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import transaction

from django_ayework import (
    ChainNotFound,
    Context,
    NotRetryable,
    Retry,
    cancel,
    complete,
    enqueue,
    enqueue_many,
    get_handle,
    retry,
    work,
)
from django_ayework.flow.context_services import EngineServices
from django_ayework.flow.settle import settle
from django_ayework.models import Work
from django_ayework.testing import drain, now, time_travel
from django_ayework.testing.running import run_here
from django_ayework.worker.claimer import deliveries_of
from tests.app.works import add, fail
from tests.chains.kit import count, gather, onward
from tests.races.rivals import claim_all

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("consistent")]


@work(name="t.blockers.fan")
def fan(ctx: Context):
    first, second = add(a=1, b=1), add(a=2, b=2)
    return ctx.queue([first, second, ctx.continue_with(gather(), blockers=[second, first])])


@work(name="t.blockers.wait_for")
def wait_for(ctx: Context, chain: str):
    return ctx.queue([gather()], blockers=[chain])


@work(name="t.blockers.afterwards")
def afterwards(ctx: Context, until: int):
    """Something to do when the whole chain has ended, and the chain's next step."""
    return ctx.queue(
        [ctx.queue([gather()], blockers=[ctx.chain_id]), ctx.continue_with(count(n=1, until=until))]
    )


@work(name="t.blockers.lost_later")
def lost_later(ctx: Context):
    return ctx.queue([add(a=1, b=1)]).next(gather(), blockers=["nobody"])


def test_it_waits_and_is_given_the_results_in_the_order_of_the_blockers():
    blockers = [enqueue(add(a=n, b=0), delay=60 - n) for n in range(1, 6)]
    handle = enqueue(gather(), blockers=blockers)
    assert handle.state().status == "blocked"
    assert handle.state().blockers == tuple(blocker.id for blocker in blockers)
    drain()
    assert handle.state().status == "blocked"
    time_travel(61)
    drain()
    late = enqueue(gather(), blockers=[blocker.id for blocker in blockers])
    assert late.state().status == "pending", "all have succeeded before"
    drain()
    assert handle.result() == late.result() == [1, 2, 3, 4, 5]


def test_a_blocker_may_be_a_chain_and_only_its_end_counts():
    chain = enqueue(count(n=0, until=2))
    handle = enqueue(gather(), blockers=[chain])
    drain(limit=2)
    assert handle.state().status == "blocked"
    drain()
    assert handle.result() == [2]


def test_one_blocker_serves_many_and_each_keeps_its_own_time(blocker):
    waiting = enqueue_many([gather() for _ in range(3)], blockers=[blocker])
    timed = enqueue(gather(), blockers=[blocker], delay=3600)
    stale = enqueue(gather(), blockers=[blocker], run_at=now() - timedelta(days=1))
    complete(blocker.id, "early")
    assert (timed.state().status, stale.state().status) == ("scheduled", "pending")
    assert stale.state().start_at >= blocker.state().ended_at
    drain()
    assert [handle.result() for handle in (*waiting, stale)] == [["early"]] * 4
    assert timed.state().status == "scheduled"


def test_a_work_without_a_delay_is_due_when_unblocked_though_its_hosts_clock_is_ahead():
    blocker = enqueue(add(a=1, b=1))
    with time_travel(30):
        handle = enqueue(gather(), blockers=[blocker])
    complete(blocker.id, "done")
    assert handle.state().status == "pending"


@pytest.mark.parametrize("bound", ["expires", "deadline"])
def test_a_work_that_is_past_its_deadline_while_it_is_blocked_is_expired(bound, blocker):
    value = 30 if bound == "expires" else now() + timedelta(seconds=30)
    handle = enqueue(gather(), blockers=[blocker], **{bound: value})
    time_travel(31)
    drain()
    assert (handle.state().status, handle.state().reason) == ("dead", "expired")
    assert blocker.state().status == "scheduled"


def test_an_unknown_blocker_is_refused_and_nothing_is_queued():
    with (
        pytest.raises(ChainNotFound, match=r"got: 'nobody'; queue it first") as refusal,
        transaction.atomic(),
    ):
        enqueue(gather(), blockers=["nobody"])
    assert refusal.value.id == "nobody"
    with pytest.raises(TypeError, match=r"expected blockers to be a list of handles or chain ids"):
        enqueue(gather(), blockers="one")
    assert not Work.objects.exists()


def test_works_queued_together_may_block_each_other_in_any_order():
    handle = enqueue(fan())
    drain()
    assert handle.chain() == [4, 2]


def test_a_step_may_wait_for_an_earlier_chain(blocker):
    handle = enqueue(onward(of=[blocker.id]))
    drain()
    assert handle.state().status == "success"
    complete(blocker.id, 8)
    drain()
    assert handle.chain() == [8]


@pytest.mark.parametrize("end", ["dead", "cancelled"])
def test_a_blocker_that_ends_without_success_kills_and_a_retry_revives(end):
    blocker = enqueue(fail() if end == "dead" else add(a=1, b=1), retry=Retry(attempts=1), delay=60)
    handle = enqueue(gather(), blockers=[blocker])
    behind = enqueue(gather(), blockers=[handle])
    if end == "cancelled":
        cancel(blocker.id)
    time_travel(61)
    drain(raises=False)
    late = enqueue(gather(), blockers=[blocker])
    drain()
    waiting = (handle, behind, late)
    assert [(h.state().status, h.state().reason) for h in waiting] == [("dead", "unsatisfiable")] * 3
    with pytest.raises(NotRetryable, match=r"still cannot start; retry first") as refusal:
        retry(handle.id)
    assert refusal.value.members == (blocker.id,)
    retry(blocker.id)
    assert [h.state().status for h in waiting] == ["blocked"] * 3
    complete(blocker.id, "mended")
    drain()
    assert [h.result() for h in waiting] == [["mended"], [["mended"]], ["mended"]]


def test_a_blocked_work_can_be_cancelled_and_completed(blocker):
    cancelled, completed = (enqueue(gather(), blockers=[blocker]) for _ in range(2))
    cancel(cancelled.id)
    complete(completed.id, "without")
    complete(blocker.id)
    drain()
    assert (cancelled.state().status, completed.result()) == ("cancelled", "without")


def test_a_dead_work_whose_blockers_succeeded_is_retried_like_any_other():
    blocker = enqueue(add(a=1, b=1))
    handle = enqueue(fail(), blockers=[blocker], retry=Retry(attempts=1))
    drain(raises=False)
    assert handle.state().reason == "exhausted"
    retry(handle.id)
    assert handle.state().status == "pending"


def test_a_work_queued_by_a_step_may_wait_for_the_end_of_the_very_chain():
    handle = enqueue(afterwards(until=3))
    drain(limit=3)
    waiting = Work.objects.get(type="t.blockers.gather")
    assert waiting.status == "blocked"
    drain()
    assert handle.chain() == 3
    assert get_handle(waiting.id).result() == [3]


def test_a_work_queued_as_its_blocker_goes_on_waits_although_both_are_settled_in_one_batch():
    chain = enqueue(count(n=0, until=2))
    waiting = enqueue(wait_for(chain=chain.id))
    claimed = deliveries_of(list(claim_all().values()))
    outcomes = {each.row.id: ended for each in claimed for _, ended in run_here(each, EngineServices())}
    settle([outcomes[waiting.id], outcomes[chain.id]])
    child = Work.objects.get(type="t.blockers.gather")
    assert child.status == "blocked"
    drain()
    assert get_handle(child.id).result() == [2]


@pytest.mark.parametrize(
    ("handler", "error"),
    [
        (
            lambda ctx: ctx.continue_with(gather(), blockers=[ctx.chain_id]),
            "with its own chain as a blocker",
        ),
        (lambda ctx: ctx.queue([gather()], blockers=["nobody"]), "got: 'nobody'"),
    ],
    ids=["own", "unknown"],
)
def test_a_handler_that_names_a_wrong_blocker_fails_its_attempt(handler, error):
    handle = enqueue(work(name="t.blockers.wrong", retry=Retry(attempts=1))(handler)())
    drain(raises=False)
    assert handle.state().status == "dead"
    assert error in handle.state().error
    assert Work.objects.count() == 1


def test_a_work_that_a_gate_releases_with_an_unknown_blocker_dies_and_spares_what_the_gate_waited_for():
    enqueue(lost_later())
    drain()
    released = Work.objects.get(type="t.blockers.gather")
    assert (released.status, released.reason) == ("dead", "unsatisfiable")
    assert "nobody is cancelled" in released.error
    assert Work.objects.get(type="@work/dependency").status == "success"
    assert Work.objects.get(type="shop.add").status == "success"
