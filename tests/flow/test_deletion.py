"""What deleting does to others: waiters, groups, running works."""

from __future__ import annotations

import pytest
from django.db import transaction

from django_ayework import (
    BlockerReference,
    Context,
    Count,
    Retry,
    WorkNotFound,
    cancel,
    complete,
    delete_chains,
    dependency,
    enqueue,
    enqueue_many,
    work,
)
from django_ayework.define.handles import Kind
from django_ayework.models import Edge, Group, Waiter, Work
from django_ayework.store.deletion import erase
from django_ayework.testing import drain
from django_ayework.testing.running import run_commit_callbacks
from tests.app.works import add, fail
from tests.chains.kit import gather
from tests.flow.kit import Oops

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("consistent")]


@work(name="t.deletion.blocked_later")
def blocked_later(ctx: Context, of: str):
    return ctx.queue([add(a=1, b=1)]).next([gather(), add(a=2, b=2)], blockers=[of])


def status_of(handle):
    state = handle.state()
    return state.status, state.reason


def outcomes():
    return set(Edge.objects.values_list("watched_id", "outcome"))


# --- waiters --------------------------------------------------------------------------------------------


def test_waiters_of_a_work_that_had_not_ended_are_decided_as_if_it_were_cancelled():
    member, other = enqueue(add(a=1, b=1)), enqueue(add(a=2, b=2), delay=60)
    needs_success = enqueue(dependency([member], [add(a=7, b=7)]))
    needs_an_end = enqueue(dependency([member], [add(a=8, b=8)], "all-done"))
    patient = enqueue(dependency([member], [add(a=9, b=9)], on_unmet="wait"))
    undecided = enqueue(dependency([member, other], [add(a=6, b=6)], Count(1, of="success")))
    delete_chains(member)
    assert status_of(needs_success) == ("dead", "unsatisfiable")
    assert status_of(needs_an_end) == ("success", None)
    assert [status_of(gate) for gate in (patient, undecided)] == [("blocked", None)] * 2
    assert outcomes() == {(member.id, "cancelled"), (other.id, "")}
    complete(other.id)
    assert status_of(undecided) == ("success", None)


def test_what_follows_from_that_follows_recursively():
    member, promised, last = add(a=1, b=1), add(a=2, b=2), add(a=3, b=3)
    enqueue(member)
    first = enqueue(dependency([member], [promised]))
    second = enqueue(dependency([promised], [last]))
    third = enqueue(dependency([last], [add(a=4, b=4)], "all-done"))
    blocked = enqueue(gather(), blockers=[first])
    delete_chains(member.id)
    assert [status_of(gate) for gate in (first, second, blocked)] == [("dead", "unsatisfiable")] * 3
    assert status_of(third) == ("success", None)


@pytest.mark.parametrize("end", ["success", "dead", "cancelled"])
def test_waiters_of_a_work_that_had_ended_keep_how_it_ended(end):
    member = enqueue(fail() if end == "dead" else add(a=1, b=1), retry=Retry(attempts=1))
    other = enqueue(add(a=2, b=2), delay=60)
    gate = enqueue(dependency([member, other], [add(a=3, b=3)], "all-done"))
    cancel(member.id) if end == "cancelled" else drain(raises=False)
    delete_chains(member)
    assert status_of(gate) == ("blocked", None)
    assert outcomes() == {(member.id, end), (other.id, "")}
    complete(other.id)
    assert status_of(gate) == ("success", None)


def test_the_works_of_a_deleted_gate_count_as_cancelled_unless_they_were_queued():
    member, nested, queued = enqueue(add(a=1, b=1), delay=60), add(a=2, b=2), add(a=3, b=3)
    gate = enqueue(dependency([member], [dependency([], [nested]), queued]))
    enqueue(queued, delay=60)
    behind_nested = enqueue(dependency([nested], [add(a=4, b=4)]))
    behind_queued = enqueue(dependency([queued], [add(a=5, b=5)]))
    assert delete_chains(gate) == [gate.id]
    assert status_of(behind_nested) == ("dead", "unsatisfiable")
    assert status_of(behind_queued) == ("blocked", None)
    assert member.state().status == "scheduled"


def test_a_work_and_the_gate_that_watches_it_go_together_and_nothing_opens():
    member = enqueue(add(a=1, b=1))
    gate = enqueue(dependency([member], [add(a=2, b=2)], "all-done"))
    assert delete_chains(member, gate) == [member.id, gate.id]
    assert (Work.objects.count(), Waiter.objects.count(), Edge.objects.count()) == (0, 0, 0)


def test_a_work_that_a_gate_releases_behind_a_deleted_chain_dies_and_the_others_run():
    """The settlement that opens the gate does not fail for it."""
    blocker = enqueue(add(a=1, b=1), delay=60)
    handle = enqueue(blocked_later(of=blocker.id))
    drain(limit=1)
    delete_chains(blocker)
    drain()
    released = Work.objects.filter(type__in=["t.blockers.gather", "shop.add"], group_id=handle.group_id)
    assert set(released.values_list("status", "reason")) == {("success", ""), ("dead", "unsatisfiable")}


def test_a_work_queued_behind_a_chain_while_that_was_deleted_dies_instead_of_waiting_for_ever():
    """Neither transaction could see the other; the second look finds the chain gone."""
    blocker = enqueue(add(a=1, b=1), delay=60)
    handle = enqueue(gather(), blockers=[blocker])
    behind = enqueue(gather(), blockers=[handle])
    erase([blocker.id])  # as a rival does that has not seen the work
    run_commit_callbacks()
    assert [status_of(h) for h in (handle, behind)] == [("dead", "unsatisfiable")] * 2
    assert (blocker.id, "cancelled") in outcomes()


# --- groups ---------------------------------------------------------------------------------------------


def counts(id: str) -> tuple[int, int, int] | None:
    return Group.objects.filter(id=id).values_list("open", "total", "dead").first()


def test_a_groups_counts_stay_exact():
    requests = [add(a=1, b=1), fail(), add(a=2, b=2), add(a=3, b=3), add(a=4, b=4)]
    handles = enqueue_many(requests, together=True, retry=Retry(attempts=1))
    drain(limit=2, raises=False)
    assert counts(handles[0].id) == (3, 5, 1)
    for deleted, left in (((1,), (3, 4, 0)), ((0,), (3, 3, 0)), ((2, 3), (1, 1, 0))):
        delete_chains(*(handles[number] for number in deleted))
        assert counts(handles[0].id) == left
    drain()
    assert handles[4].group() == 8


def test_a_group_whose_last_open_work_is_deleted_is_done_and_sends_so_once(events):
    first, second = enqueue_many([add(a=1, b=1), add(a=2, b=2)], together=True)
    drain(limit=1)
    delete_chains(second)
    drain()
    done = [event for event in events if event.kind is Kind.GROUP_DONE]
    assert [(event.group_id, event.value) for event in done] == [(first.id, 2)]
    assert first.group() == 2
    settled = Group.objects.get().done_at
    with pytest.raises(WorkNotFound):
        second.group()
    delete_chains(enqueue(add(a=3, b=3)))
    drain()
    assert [event for event in events if event.kind is Kind.GROUP_DONE] == done
    assert Group.objects.get().done_at == settled


def test_deleting_what_had_ended_does_not_settle_a_group_again(events):
    first, second = enqueue_many([add(a=1, b=1), add(a=2, b=2)], together=True)
    drain()
    events.clear()
    settled = Group.objects.get().done_at
    delete_chains(first)
    drain()
    assert (counts(first.id), Group.objects.get().done_at) == ((0, 1, 0), settled)
    assert events == []
    assert second.group() == 4


@pytest.mark.parametrize("pruned", [False, True])
def test_a_group_goes_with_its_last_work_and_sends_nothing(events, pruned):
    first, second = enqueue_many([add(a=1, b=1), add(a=2, b=2)], together=True)
    if pruned:
        drain()
        erase([first.id])
    events.clear()
    delete_chains(first, second)
    drain()
    assert not Group.objects.exists()
    assert [event for event in events if event.kind is Kind.GROUP_DONE] == []


# --- running works --------------------------------------------------------------------------------------


def test_a_work_may_delete_chains_in_its_own_transaction():
    old = enqueue(add(a=1, b=1))
    drain()

    @work(name="t.deletion.tidy", atomic=True, retry=Retry(attempts=1))
    def tidy(of: str, broken: bool) -> list[str]:
        deleted = delete_chains(of)
        if broken:
            raise Oops
        return deleted

    for broken in (True, False):
        handle = enqueue(tidy(of=old.id, broken=broken))
        drain(raises=False)
        assert (old.state() is not None) is broken
    assert handle.result() == [old.id]


def test_a_refused_deletion_leaves_the_callers_transaction_usable():
    blocker = enqueue(add(a=1, b=1))
    enqueue(gather(), blockers=[blocker])
    with transaction.atomic():
        with pytest.raises(BlockerReference):
            delete_chains(blocker)
        later = enqueue(add(a=2, b=2))
    drain()
    assert later.result() == 4
