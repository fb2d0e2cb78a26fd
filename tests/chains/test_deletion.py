"""Deleting chains: all that is theirs goes, unless a work that stays is blocked by them."""

from __future__ import annotations

import logging

import pytest
from asgiref.sync import async_to_sync
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_ayework import (
    AyeworkError,
    BlockerReference,
    Retry,
    Status,
    adelete_chains,
    cancel,
    complete,
    delete_chains,
    dependency,
    enqueue,
    enqueue_many,
    get_handle,
)
from django_ayework.models import Attempt, Edge, Waiter, Work
from django_ayework.testing import drain
from tests.app.works import add, fail
from tests.chains.kit import count, gather, onward, steps_of

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("consistent")]


def left() -> set[str]:
    return set(Work.objects.values_list("id", flat=True))


@pytest.fixture
def blocked_chain(blocker):
    """A chain whose second work is blocked."""
    chain = enqueue(onward(of=[blocker.id]))
    drain()
    return chain


def test_a_chain_goes_with_all_its_works_and_what_is_theirs():
    kept = enqueue(add(a=1, b=1), delay=60)
    blocker = enqueue(fail(), retry=Retry(attempts=1))
    handle = enqueue(count(n=0, until=3))
    behind = enqueue(gather(), blockers=[blocker])
    drain(raises=False)
    assert (Attempt.objects.count(), Waiter.objects.count(), Edge.objects.count()) == (1, 1, 1)
    assert delete_chains(handle.id, blocker.id, behind.id) == [handle.id, blocker.id, behind.id]
    assert left() == {kept.id}
    assert (Attempt.objects.count(), Waiter.objects.count(), Edge.objects.count()) == (0, 0, 0)


def test_the_ids_come_back_in_the_order_given_each_once_and_missing_ones_are_passed_over():
    first, second, third = (enqueue(add(a=1, b=1)) for _ in range(3))
    asked = [third.id, "nobody", first.id, third.id, second.id]
    assert delete_chains(*asked) == [third.id, first.id, second.id]
    assert delete_chains(*asked) == []
    assert delete_chains() == []


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


def test_a_chain_whose_first_works_were_pruned_is_still_a_chain():
    handle = enqueue(count(n=0, until=3))
    drain(limit=3)
    Work.objects.filter(id=handle.id).delete()
    assert delete_chains(handle.id) == [handle.id]
    assert left() == set()


def test_it_has_an_async_twin():
    handle = enqueue(add(a=1, b=1))
    assert async_to_sync(adelete_chains)(handle) == [handle.id]


def test_the_log_names_what_went(caplog):
    handle = enqueue(add(a=1, b=1))
    caplog.set_level(logging.INFO, "django_ayework")
    delete_chains(handle.id)
    drain()
    assert f"Deleted 1 chain: {handle.id}" in caplog.text


# --- works that stay ------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [None, "success", "dead", "cancelled"])
def test_a_chain_that_blocks_another_work_or_had_blocked_it_is_kept(end):
    blocker, other = enqueue(add(a=1, b=1)), enqueue(add(a=2, b=2))
    request = fail() if end == "dead" else gather()
    handle = enqueue(request, blockers=[blocker], retry=Retry(attempts=1))
    if end is not None:
        complete(blocker.id)
        cancel(handle.id) if end == "cancelled" else drain(raises=False)
        assert handle.state().status == end
    before = left()
    with pytest.raises(BlockerReference) as refusal:
        delete_chains(other, blocker)
    assert refusal.value.references == ((blocker.id, handle.id),)
    assert refusal.value.id == blocker.id
    assert isinstance(refusal.value, AyeworkError)
    assert f"but {blocker.id} blocks the work {handle.id}; nothing was deleted" in str(refusal.value)
    assert left() == before


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
    assert delete_chains(blocker, blocked_chain) == [blocker.id, blocked_chain.id]
    assert left() == set()


# --- cascade --------------------------------------------------------------------------------------------


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


def test_a_cascade_follows_the_blockers_of_every_work_of_a_chain(blocker, blocked_chain):
    assert delete_chains(blocked_chain, cascade=True) == [blocked_chain.id, blocker.id]
    assert left() == set()


def test_a_cascade_is_refused_when_a_blocker_blocks_another_work_too():
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


def test_a_blocker_that_was_pruned_is_passed_over():
    blocker = enqueue(add(a=1, b=1))
    handle = enqueue(gather(), blockers=[blocker])
    drain()
    Work.objects.filter(id=blocker.id).delete()
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

    assert statements(12) == statements(3) < 30


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
    assert behind.state().status is Status.SUCCESS
