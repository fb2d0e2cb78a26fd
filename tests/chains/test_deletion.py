"""Deleting chains: all that is theirs goes, unless a work that stays is blocked by them."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_ayework import Context, Count, cancel, dependency, enqueue, enqueue_many, get_handle, work
from django_ayework.api import adelete_chains, complete, delete_chains
from django_ayework.define.handles import Kind
from django_ayework.errors import AyeworkError, BlockerReference, WorkNotFound
from django_ayework.models import Attempt, Edge, Group, Waiter, Work
from django_ayework.store.deletion import erase
from django_ayework.testing import drain
from django_ayework.testing.running import run_commit_callbacks
from tests.app.works import add, fail
from tests.chains.kit import count, gather, onward, steps_of
from tests.flow.kit import ONCE, Oops, standing

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("consistent")]
OPEN, WAITS, LOST = ("success", None), ("blocked", None), ("dead", "unsatisfiable")


def left() -> set[str]:
    return set(Work.objects.values_list("id", flat=True))


def belongings() -> tuple[int, int, int]:
    return Attempt.objects.count(), Waiter.objects.count(), Edge.objects.count()


def gate_over(*on: Any, condition: Any = "all-success", **options: Any) -> Any:
    return enqueue(dependency([*on], [add(a=9, b=9)], condition, **options))


@pytest.fixture
def blocked_chain(blocker):
    """A chain whose second work is blocked."""
    chain = enqueue(onward(of=[blocker.id]))
    drain()
    return chain


def test_a_chain_goes_with_all_its_works_and_what_is_theirs():
    kept = enqueue(add(a=1, b=1), delay=60)
    blocker = enqueue(fail(), retry=ONCE)
    handle = enqueue(count(n=0, until=3))
    behind = enqueue(gather(), blockers=[blocker])
    drain(raises=False)
    assert belongings() == (1, 1, 1)
    assert delete_chains(handle.id, blocker.id, behind.id) == [handle.id, blocker.id, behind.id]
    assert (left(), belongings()) == ({kept.id}, (0, 0, 0))


def test_the_ids_come_back_in_the_order_given_each_once_and_missing_ones_are_passed_over(caplog):
    first, second, third = (enqueue(add(a=1, b=1)) for _ in range(3))
    asked = [third.id, "nobody", first.id, third.id]
    assert delete_chains(*asked) == [third.id, first.id]
    assert delete_chains(*asked) == delete_chains() == []
    caplog.set_level(logging.INFO, "django_ayework")
    assert async_to_sync(adelete_chains)(second) == [second.id]
    drain()
    assert f"Deleted 1 chain: {second.id}" in caplog.text


def test_handles_and_requests_stand_for_their_chains_and_the_id_of_a_later_work_for_none():
    request = add(a=1, b=1)
    enqueue(request)
    handle = enqueue(count(n=0, until=2))
    drain()
    last = steps_of(handle.id)[-1].id
    assert delete_chains(last) == []
    assert len(left()) == 4
    assert delete_chains(get_handle(last), request, get_handle("nobody")) == [handle.id, request.id]
    assert left() == set()
    with pytest.raises(ValueError, match=r"got: \['a', 'b'\]"):
        delete_chains(["a", "b"])
    handle = enqueue(count(n=0, until=3))
    drain(limit=3)
    Work.objects.filter(id=handle.id).delete()  # as pruning does with the first works of a chain
    assert (delete_chains(handle.id), left()) == ([handle.id], set())


# --- works that stay, and a cascade ---------------------------------------------------------------------


@pytest.mark.parametrize("end", [None, "success", "dead", "cancelled"])
def test_a_chain_that_blocks_another_work_or_had_blocked_it_is_kept(end):
    blocker, other = enqueue(add(a=1, b=1)), enqueue(add(a=2, b=2))
    handle = enqueue(fail() if end == "dead" else gather(), blockers=[blocker], retry=ONCE)
    if end is not None:
        complete(blocker.id)
        cancel(handle.id) if end == "cancelled" else drain(raises=False)
        assert handle.state().status == end
    before = left()
    with transaction.atomic():
        with pytest.raises(BlockerReference) as refusal:
            delete_chains(other, blocker)
        assert left() == before, "the transaction goes on"
    assert refusal.value.references == ((blocker.id, handle.id),)
    assert refusal.value.id == blocker.id
    assert isinstance(refusal.value, AyeworkError)
    assert f"but {blocker.id} blocks the work {handle.id}; nothing was deleted" in str(refusal.value)


def test_every_reference_is_given_and_the_first_are_named():
    blockers = [enqueue(add(a=n, b=0), delay=60) for n in range(2)]
    waiting = enqueue_many([gather() for _ in range(4)], blockers=blockers)
    with pytest.raises(BlockerReference, match="and 3 more; nothing") as refusal:
        delete_chains(*blockers)
    assert set(refusal.value.references) == {(b.id, w.id) for b in blockers for w in waiting}


def test_a_later_work_that_is_blocked_keeps_its_blocker_and_they_go_together(blocker, blocked_chain):
    with pytest.raises(BlockerReference) as refusal:
        delete_chains(blocker)
    assert refusal.value.references == ((blocker.id, steps_of(blocked_chain.id)[1].id),)
    assert delete_chains(blocked_chain, cascade=True) == [blocked_chain.id, blocker.id]
    assert left() == set()


def diamond():
    a = enqueue(add(a=1, b=1), delay=60)
    b, c = (enqueue(gather(), blockers=[a]) for _ in range(2))
    return a, b, c, enqueue(gather(), blockers=[b, c])


@pytest.mark.parametrize(
    ("asked", "cascade", "deleted"),
    [("d", False, "d"), ("d", True, "dbca"), ("ad", True, "adbc")],
    ids=["none", "cascade", "asked first"],
)
def test_a_cascade_takes_what_blocks_in_turn_each_once(asked, cascade, deleted):
    chains = dict(zip("abcd", diamond(), strict=True))
    kept = enqueue(add(a=1, b=1), delay=60)
    ids = delete_chains(*(chains[name] for name in asked), cascade=cascade)
    assert ids == [chains[name].id for name in deleted]
    assert left() == {kept.id} | {chains[name].id for name in set("abcd").difference(deleted)}


def test_a_cascade_is_refused_when_a_blocker_blocks_another_work_too_and_passes_over_pruned_ones():
    a, b, _, d = diamond()
    other = enqueue(gather(), blockers=[a])
    before = left()
    with pytest.raises(BlockerReference) as refusal:
        delete_chains(d, cascade=True)
    assert refusal.value.references == ((a.id, other.id),)
    with pytest.raises(BlockerReference):
        delete_chains(b, cascade=True)
    assert left() == before
    assert len(delete_chains(d, other, cascade=True)) == 5
    blocker = enqueue(add(a=1, b=1))
    handle = enqueue(gather(), blockers=[blocker])
    drain()
    Work.objects.filter(id=blocker.id).delete()  # as pruning does
    assert delete_chains(handle, cascade=True) == [handle.id]


def test_the_number_of_statements_does_not_grow_with_the_works():
    def statements(works: int) -> int:
        blockers = enqueue_many([add(a=1, b=1) for _ in range(works)], together=True)
        chains = enqueue_many([count(n=0, until=2) for _ in range(works)])
        drain()
        handles = enqueue_many([gather() for _ in range(works)], blockers=blockers)
        with CaptureQueriesContext(connection) as captured:
            deleted = delete_chains(*(handle.id for handle in [*handles, *chains]), cascade=True)
        assert len(deleted) == 3 * works
        return len(captured)

    assert statements(6) == statements(3) < 30


@pytest.mark.vendors("postgresql", "mysql")
def test_all_waiters_that_a_deletion_concerns_are_locked_by_one_statement():
    """In two, those of the second would not be in id order with those of the first."""
    released = add(a=1, b=1)
    behind = enqueue(dependency([released], [], "all-done"), id="a-behind")
    gate = enqueue(dependency(["unborn"], [released]), id="b-gate")
    drain()
    with CaptureQueriesContext(connection) as run:
        delete_chains(gate.id)
    statements = [query["sql"] for query in run if "django_ayework_waiter" in query["sql"]]
    locks = [sql for sql in statements if "FOR UPDATE" in sql]
    assert behind.id in locks[0] and gate.id in locks[0]
    assert standing(behind) == OPEN


# --- waiters --------------------------------------------------------------------------------------------


def outcomes():
    return set(Edge.objects.values_list("watched_id", "outcome"))


def test_waiters_of_a_work_that_had_not_ended_are_decided_recursively_as_if_it_were_cancelled():
    member, other, promised, last = (add(a=n, b=0) for n in range(4))
    for request, delay in ((member, 0), (other, 60)):
        enqueue(request, delay=delay)
    first = enqueue(dependency([member], [promised]))
    second = enqueue(dependency([promised], [last]))
    blocked = enqueue(gather(), blockers=[first])
    for_an_end, third = gate_over(member, condition="all-done"), gate_over(last, condition="all-done")
    patient = gate_over(member, on_unmet="wait")
    undecided = gate_over(member, other, condition=Count(1, of="success"))
    delete_chains(member)
    assert [standing(each) for each in (first, second, blocked)] == [LOST] * 3
    assert [standing(each) for each in (for_an_end, third)] == [OPEN] * 2
    assert [standing(each) for each in (patient, undecided)] == [WAITS] * 2
    assert outcomes() >= {(member.id, "cancelled"), (other.id, "")}
    complete(other.id)
    assert standing(undecided) == OPEN


@pytest.mark.parametrize("end", ["success", "dead", "cancelled"])
def test_waiters_of_a_work_that_had_ended_keep_how_it_ended(end):
    member = enqueue(fail() if end == "dead" else add(a=1, b=1), retry=ONCE)
    other = enqueue(add(a=2, b=2), delay=60)
    gate = gate_over(member, other, condition="all-done")
    cancel(member.id) if end == "cancelled" else drain(raises=False)
    delete_chains(member)
    assert standing(gate) == WAITS
    assert outcomes() == {(member.id, end), (other.id, "")}
    complete(other.id)
    assert standing(gate) == OPEN


def test_the_works_of_a_deleted_gate_count_as_cancelled_unless_they_were_queued_or_go_with_it():
    member, nested, queued = enqueue(add(a=1, b=1), delay=60), add(a=2, b=2), add(a=3, b=3)
    gate = enqueue(dependency([member], [dependency([], [nested]), queued]))
    enqueue(queued, delay=60)
    behind_nested, behind_queued = gate_over(nested), gate_over(queued)
    assert delete_chains(gate) == [gate.id]
    assert (standing(behind_nested), standing(behind_queued)) == (LOST, WAITS)
    assert member.state().status == "scheduled"
    gates = [gate_over(member, condition="all-done"), behind_nested, behind_queued]
    assert len(delete_chains(member, queued, *gates)) == 5
    assert (left(), belongings()) == (set(), (0, 0, 0)), "nothing opens"


def test_a_work_that_a_gate_releases_behind_a_deleted_chain_dies_and_the_others_run():
    """The settlement that opens the gate does not fail for it."""

    @work(name="t.deletion.blocked_later")
    def blocked_later(ctx: Context, of: str):
        return ctx.queue([add(a=1, b=1)]).next([gather(), add(a=2, b=2)], blockers=[of])

    blocker = enqueue(add(a=1, b=1), delay=60)
    handle = enqueue(blocked_later(of=blocker.id))
    drain(limit=1)
    delete_chains(blocker)
    drain()
    released = Work.objects.filter(type__in=["t.blockers.gather", "shop.add"], group_id=handle.group_id)
    assert set(released.values_list("status", "reason")) == {("success", ""), LOST}


def test_a_work_queued_behind_a_chain_while_that_was_deleted_dies_instead_of_waiting_for_ever():
    """Neither transaction could see the other; the second look finds the chain gone."""
    blocker = enqueue(add(a=1, b=1), delay=60)
    handle = enqueue(gather(), blockers=[blocker])
    behind = enqueue(gather(), blockers=[handle])
    erase([blocker.id])  # as a rival does that has not seen the work
    run_commit_callbacks()
    assert [standing(each) for each in (handle, behind)] == [LOST] * 2
    assert (blocker.id, "cancelled") in outcomes()


# --- groups, and running works --------------------------------------------------------------------------


def counts(id: str) -> tuple[int, int, int] | None:
    return Group.objects.filter(id=id).values_list("open", "total", "dead").first()


def done(events: list[Any]) -> list[tuple[str, Any]]:
    return [(event.group_id, event.value) for event in events if event.kind is Kind.GROUP_DONE]


def test_a_groups_counts_stay_exact():
    requests = [add(a=1, b=1), fail(), add(a=2, b=2), add(a=3, b=3), add(a=4, b=4)]
    handles = enqueue_many(requests, together=True, retry=ONCE)
    drain(limit=2, raises=False)
    assert counts(handles[0].id) == (3, 5, 1)
    for deleted, left in (((1,), (3, 4, 0)), ((0,), (3, 3, 0)), ((2, 3), (1, 1, 0))):
        delete_chains(*(handles[number] for number in deleted))
        assert counts(handles[0].id) == left
    drain()
    assert handles[4].group() == 8


def test_a_group_whose_last_open_work_is_deleted_is_done_and_sends_so_once(events):
    first, second, third = enqueue_many([add(a=n, b=0) for n in range(3)], together=True)
    drain(limit=2)
    delete_chains(third)
    drain()
    assert done(events) == [(first.id, 1)]
    assert first.group() == 1
    settled = Group.objects.get().done_at
    with pytest.raises(WorkNotFound):
        third.group()
    delete_chains(first)  # which had ended
    drain()
    assert (done(events), counts(first.id)) == ([(first.id, 1)], (0, 1, 0))
    assert Group.objects.get().done_at == settled
    assert second.group() == 1


@pytest.mark.parametrize("pruned", [False, True])
def test_a_group_goes_with_its_last_work_and_sends_nothing(events, pruned):
    first, second = enqueue_many([add(a=1, b=1), add(a=2, b=2)], together=True)
    if pruned:
        drain()
        erase([first.id])
    events.clear()
    delete_chains(first, second)
    drain()
    assert (Group.objects.count(), done(events)) == (0, [])


def test_a_work_may_delete_chains_in_its_own_transaction():
    old = enqueue(add(a=1, b=1))
    drain()

    @work(name="t.deletion.tidy", atomic=True, retry=ONCE)
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
