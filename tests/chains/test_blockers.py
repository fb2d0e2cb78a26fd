"""A work that waits for chains to succeed, and is given their results; and the keys of chains."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_ayework import Context, Dedup, cancel, complete, enqueue, enqueue_many, get_handle, retry, work
from django_ayework.errors import ChainNotFound, InvalidInstruction, NotRetryable
from django_ayework.flow.context_services import EngineServices
from django_ayework.flow.settle import settle
from django_ayework.models import Work
from django_ayework.testing import drain, now, perform, time_travel
from django_ayework.testing.running import run_here
from django_ayework.worker.claimer import deliveries_of
from tests.app.works import add, fail
from tests.chains.kit import count, gather, onward
from tests.flow.kit import ONCE, standing
from tests.races.rivals import claim_all

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("consistent")]


def test_it_waits_and_is_given_the_results_in_the_order_of_the_blockers():
    blockers = [enqueue(add(a=n, b=0), delay=60 - n) for n in range(1, 6)]
    handle = enqueue(gather(), blockers=blockers)
    assert handle.state().blockers == tuple(blocker.id for blocker in blockers)
    drain()
    assert handle.state().status == "blocked"
    time_travel(61)
    drain()
    late = enqueue(gather(), blockers=[blocker.id for blocker in blockers])
    assert late.state().status == "pending", "all have succeeded before"
    drain()
    assert handle.result() == late.result() == [1, 2, 3, 4, 5]


def test_one_blocker_serves_many_and_each_keeps_its_own_time(blocker):
    waiting = enqueue_many([gather() for _ in range(3)], blockers=[blocker])
    timed = enqueue(gather(), blockers=[blocker], delay=3600)
    stale = enqueue(gather(), blockers=[blocker], run_at=now() - timedelta(days=1))
    with time_travel(30):  # the clock of this host is ahead
        waiting.append(enqueue(gather(), blockers=[blocker]))
    complete(blocker.id, "early")
    assert [standing(each)[0] for each in (timed, stale, waiting[-1])] == ["scheduled", "pending", "pending"]
    assert stale.state().start_at >= blocker.state().ended_at
    drain()
    assert [handle.result() for handle in (*waiting, stale)] == [["early"]] * 5
    assert timed.state().status == "scheduled"


@pytest.mark.parametrize("bound", ["expires", "deadline"])
def test_a_work_that_is_past_its_deadline_while_it_is_blocked_is_expired(bound, blocker):
    value = 30 if bound == "expires" else now() + timedelta(seconds=30)
    handle = enqueue(gather(), blockers=[blocker], **{bound: value})
    time_travel(31)
    drain()
    assert (standing(handle), blocker.state().status) == (("dead", "expired"), "scheduled")
    assert handle.state().error == "deadline exceeded: its condition was not met in time"


def test_an_unknown_blocker_is_refused_and_nothing_is_queued():
    refused = pytest.raises(ChainNotFound, match=r"got: 'nobody'; queue it first")
    with refused as refusal, transaction.atomic():
        enqueue(gather(), blockers=["nobody"])
    assert refusal.value.id == "nobody"
    with pytest.raises(TypeError, match=r"expected blockers to be a list of handles or chain ids"):
        enqueue(gather(), blockers="one")
    assert not Work.objects.exists()


@pytest.mark.parametrize("queue", [
    lambda first, second: enqueue(first, blockers=[first]),
    lambda first, second: enqueue_many([second, first], blockers=[first]),
])  # fmt: skip
def test_a_work_that_would_block_itself_is_refused_and_nothing_is_queued(queue):
    first, second = add(a=1, b=1), add(a=2, b=2)
    with pytest.raises(
        InvalidInstruction, match=r"works that wait for one another: shop\.add (\S+) → shop\.add \1;"
    ) as refusal:
        queue(first, second)
    assert refusal.value.id == first.id
    assert not Work.objects.exists()


def test_a_handler_that_queues_a_work_that_would_block_itself_fails():
    @work(name="t.blockers.itself", retry=ONCE)
    def itself(ctx: Context):
        first, second = add(a=1, b=1), add(a=2, b=2)
        return ctx.queue([first, second], blockers=[first])

    handle = enqueue(itself())
    drain(raises=False)
    assert (handle.state().status, Work.objects.count()) == ("dead", 1)
    assert "none of them would ever start" in handle.state().error


def test_works_queued_together_may_block_each_other_in_any_order():
    @work(name="t.blockers.fan")
    def fan(ctx: Context):
        first, second = add(a=1, b=1), add(a=2, b=2)
        return ctx.queue([first, second, ctx.continue_with(gather(), blockers=[second, first])])

    handle = enqueue(fan())
    drain()
    assert handle.chain() == [4, 2]


def test_a_blocker_may_be_a_chain_and_only_its_end_counts_and_a_step_may_wait_for_one():
    chain = enqueue(count(n=0, until=2))
    handle, step = enqueue(gather(), blockers=[chain]), enqueue(onward(of=[chain.id]))
    drain(limit=3)
    assert (handle.state().status, step.state().status) == ("blocked", "success")
    drain()
    assert (handle.result(), step.chain()) == ([2], [2])


@pytest.mark.parametrize("end", ["dead", "cancelled"])
def test_a_blocker_that_ends_without_success_kills_and_a_retry_revives(end):
    blocker = enqueue(fail() if end == "dead" else add(a=1, b=1), retry=ONCE, delay=60)
    handle = enqueue(gather(), blockers=[blocker])
    behind = enqueue(gather(), blockers=[handle])
    if end == "cancelled":
        cancel(blocker.id)
    time_travel(61)
    drain(raises=False)
    late = enqueue(gather(), blockers=[blocker])
    drain()
    waiting = (handle, behind, late)
    assert [standing(each) for each in waiting] == [("dead", "unsatisfiable")] * 3
    with pytest.raises(NotRetryable, match=r"still cannot start; retry first") as refusal:
        retry(handle.id)
    assert refusal.value.members == (blocker.id,)
    retry(blocker.id)
    assert [each.state().status for each in waiting] == ["blocked"] * 3
    complete(blocker.id, "mended")
    drain()
    assert [each.result() for each in waiting] == [["mended"], [["mended"]], ["mended"]]


def test_a_work_whose_blockers_are_gone_is_not_to_be_retried_after_them():
    blocker = enqueue(add(a=1, b=1))
    handle = enqueue(gather(), blockers=[blocker])
    cancel(blocker.id)
    Work.objects.filter(id=blocker.id).delete()
    with pytest.raises(NotRetryable, match=r"no work has the ids .+; queue a new work") as refusal:
        retry(handle.id)
    assert refusal.value.members == ()
    assert blocker.id in str(refusal.value)


def test_a_blocked_work_can_be_cancelled_and_completed_and_one_that_died_later_is_retried(blocker):
    cancelled, completed = (enqueue(gather(), blockers=[blocker]) for _ in range(2))
    failing = enqueue(fail(), blockers=[blocker], retry=ONCE)
    cancel(cancelled.id)
    complete(completed.id, "without")
    complete(blocker.id)
    drain(raises=False)
    assert (cancelled.state().status, completed.result()) == ("cancelled", "without")
    assert failing.state().reason == "exhausted"
    retry(failing.id)
    assert failing.state().status == "pending"


def test_of_the_steps_of_a_chain_that_blocks_a_work_no_input_is_read():
    """A chain may have ten thousand steps."""
    chain = enqueue(count(n=0, until=3))
    drain(limit=3)
    with CaptureQueriesContext(connection) as seen:
        handle = enqueue(gather(), blockers=[chain])
        drain(limit=0)
    assert [each["sql"] for each in seen if re.match(r"SELECT [^(]*\binput\b", each["sql"])] == []
    drain()
    assert handle.result() == [3]


def test_a_work_queued_by_a_step_may_wait_for_the_end_of_the_very_chain():
    """Something to do when the whole chain has ended, and the chain's next step."""

    @work(name="t.blockers.afterwards")
    def afterwards(ctx: Context):
        return ctx.queue(
            [ctx.queue([gather()], blockers=[ctx.chain_id]), ctx.continue_with(count(n=1, until=3))]
        )

    handle = enqueue(afterwards())
    drain(limit=3)
    waiting = Work.objects.get(type="t.blockers.gather")
    assert waiting.status == "blocked"
    drain()
    assert (handle.chain(), get_handle(waiting.id).result()) == (3, [3])


def test_a_work_queued_as_its_blocker_goes_on_waits_although_both_are_settled_in_one_batch():
    chain = enqueue(count(n=0, until=2))
    wait_for = work(name="t.blockers.wait_for")(lambda ctx: ctx.queue([gather()], blockers=[chain.id]))
    waiting = enqueue(wait_for())
    claimed = deliveries_of(list(claim_all().values()))
    outcomes = {each.row.id: ended for each in claimed for _, ended in run_here([each], EngineServices())}
    settle([outcomes[waiting.id], outcomes[chain.id]])
    child = Work.objects.get(type="t.blockers.gather")
    assert child.status == "blocked"
    drain()
    assert get_handle(child.id).result() == [2]


def test_a_work_that_a_gate_releases_with_an_unknown_blocker_dies_and_spares_what_the_gate_waited_for():
    lost_later = work(name="t.blockers.lost_later")(
        lambda ctx: ctx.queue([add(a=1, b=1)]).next(gather(), blockers=["nobody"])
    )
    enqueue(lost_later())
    drain()
    released = Work.objects.get(type="t.blockers.gather")
    assert (released.status, released.reason) == ("dead", "unsatisfiable")
    assert "nobody is cancelled" in released.error
    assert set(Work.objects.exclude(id=released.id).values_list("status", flat=True)) == {"success"}


# --- keys: a chain is there until its last work has ended -----------------------------------------------


KEY = Dedup("k")


@work(name="t.keyed.first", retry=ONCE)
def first(ctx: Context, steps: int = 1):
    return ctx.continue_with(step(left=steps - 1), delay=60)


@work(name="t.keyed.step", retry=ONCE)
def step(ctx: Context, left: int):
    if left < 0:
        raise ValueError("no step is left")
    return ctx.continue_with(step(left=left - 1), delay=60) if left else ctx.result("done")


@work(name="t.keyed.computed", options=lambda key: {"dedup": Dedup(key)})
def computed(ctx: Context, key: str):
    return ctx.continue_with(computed(key="another"), delay=60) if key == "k" else ctx.result(key)


def test_a_chain_that_goes_on_is_there_and_its_handle_is_that_of_its_first_work():
    handle = enqueue(first(steps=3), dedup=KEY)
    for _ in range(3):
        drain()
        again = enqueue(first(steps=3), dedup=KEY)
        assert (again.id, again.chain_id, again.deduplicated) == (handle.id, handle.id, True)
        time_travel(60)
    assert not enqueue(step(left=0), dedup=KEY).deduplicated, "the key is that of the first work's type"
    drain()
    assert handle.chain(timeout=0) == "done"
    assert enqueue(first(), dedup=Dedup("k", "any")).id == handle.id
    assert not enqueue(first(), dedup=KEY).deduplicated


def test_a_chain_whose_last_work_is_dead_or_cancelled_has_ended_until_it_is_retried():
    handle = enqueue(first(steps=0), dedup=KEY)
    drain()
    time_travel(60)
    drain(raises=False)
    assert handle.state().status == "success"
    other = enqueue(first(), dedup=KEY)
    assert not other.deduplicated
    cancel(other.id)
    dead = Work.objects.get(chain_id=handle.id, chain_index=1)
    retry(dead.id, input={"left": 0})
    assert enqueue(first(), dedup=KEY).id == handle.id
    cancel(dead.id)
    assert not enqueue(first(), dedup=KEY).deduplicated


def test_of_several_chains_the_one_that_began_last_is_given():
    old = enqueue(first(steps=5), dedup=KEY)
    time_travel(1)
    new = enqueue(first(steps=5), dedup=Dedup("k", exclude=[old]))
    drain()
    time_travel(60)
    drain()
    assert enqueue(first(), dedup=KEY).id == new.id
    assert enqueue(first(), dedup=Dedup("k", exclude=[new])).id == old.id
    assert not enqueue(first(), dedup=Dedup("k", exclude=[new, old])).deduplicated


@pytest.mark.parametrize("scope", ["incomplete", "any"])
def test_a_window_counts_from_the_chains_beginning(scope):
    enqueue(first(steps=5), dedup=KEY)
    for _ in range(2):
        drain()
        time_travel(60)
    assert enqueue(first(), dedup=Dedup("k", scope, window=125)).deduplicated
    assert not enqueue(first(), dedup=Dedup("k", scope, window=115)).deduplicated


def test_a_continuation_keeps_the_key_of_its_chain_whatever_its_type_computes():
    handle = enqueue(computed(key="k"))
    drain()
    assert enqueue(computed(key="k")).id == handle.id
    assert not enqueue(computed(key="another")).deduplicated


@pytest.mark.parametrize(("option", "value"), [("dedup", KEY), ("unit", "u")])
def test_a_continuation_takes_no_key_of_its_own(option, value):
    refused = work(name="t.keyed.refused")(lambda ctx: ctx.continue_with(step(left=1), **{option: value}))
    error = perform(refused()).error
    assert isinstance(error, TypeError)
    assert f"ctx.continue_with(...) takes no {option}=" in str(error)


def test_works_without_a_key_have_none_anywhere():
    enqueue_many([first(), add(a=1, b=2)])
    drain()
    assert set(Work.objects.values_list("dedup_key", "dedup_type")) == {(None, None)}
