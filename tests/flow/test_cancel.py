"""Cancelling a work that has not ended."""

import pytest

from django_ayework import (
    AlreadyCompleted,
    Context,
    WorkCancelled,
    WorkNotFound,
    cancel,
    dependency,
    enqueue,
    enqueue_many,
    retry,
    work,
)
from django_ayework.flow.settle import Settlement, Success, settle
from django_ayework.models import Group, Work
from django_ayework.testing import assert_not_enqueued, drain
from tests.app.works import add
from tests.invariants import assert_consistent
from tests.races.rivals import claim_all

pytestmark = pytest.mark.django_db


@work(name="t.cancel.root")
def root(ctx: Context):
    return ctx.queue([add(a=1, b=1), add(a=2, b=2)]).next([add(a=3, b=3)])


def running(handle):
    [row] = claim_all().values()
    assert row.id == handle.id
    return row


@pytest.mark.parametrize("options", [{}, {"delay": 60}])
def test_a_waiting_work_ends_at_once_and_never_runs(options):
    handle = enqueue(add(a=1, b=2), **options)

    assert cancel(handle.id) == handle

    assert handle.state().status == "cancelled"
    assert drain().ran == 0
    with pytest.raises(WorkCancelled):
        handle.result()


def test_the_late_result_of_a_running_work_is_refused():
    handle = enqueue(add(a=1, b=2))
    row = running(handle)

    cancel(handle.id)

    assert settle([Settlement(row, Success("3"))]).refused == [handle.id]
    state = handle.state()
    assert (state.status, state.result, state.worker) == ("cancelled", None, None)


def test_a_work_that_has_ended_is_left_alone():
    handle = enqueue(add(a=1, b=2))
    drain()

    with pytest.raises(AlreadyCompleted, match=f"{handle.id} .* has ended already: it is success"):
        cancel(handle.id)
    assert handle.result() == 3


def test_an_unknown_work_is_told_so():
    with pytest.raises(WorkNotFound, match="'nobody'"):
        cancel("nobody")


def test_a_rollback_takes_it_back():
    from django.db import transaction

    handle = enqueue(add(a=1, b=2))
    with pytest.raises(RuntimeError), transaction.atomic():
        cancel(handle.id)
        raise RuntimeError
    assert handle.state().status == "pending"


def test_its_waiters_are_decided():
    member = enqueue(add(a=1, b=2))
    needs_success = enqueue(dependency(on=[member], queue=[add(a=8, b=8)]))
    needs_an_end = enqueue(dependency(on=[member], queue=[add(a=9, b=9)], condition="all-done"))

    cancel(member.id)

    assert (needs_success.state().status, needs_success.state().reason) == ("dead", "unsatisfiable")
    assert needs_an_end.state().status == "success"
    drain()
    assert_consistent()


def test_a_cancelled_gate_queues_nothing_and_what_follows_it_closes():
    handle = enqueue(root())
    drain(limit=1)
    gate = Work.objects.get(type="@work/dependency")

    cancel(gate.id)
    drain()

    assert_not_enqueued(add, a=3)
    group = Group.objects.get(id=handle.group_id)
    assert (group.open, group.dead) == (0, 0)
    assert_consistent()


def test_a_cancelled_work_can_be_retried_and_revives_who_died_of_it():
    member = enqueue(add(a=1, b=2))
    gate = enqueue(dependency(on=[member], queue=[add(a=8, b=8)]))
    cancel(member.id)

    retry(member.id)
    assert gate.state().status == "blocked"
    drain()

    assert gate.state().status == "success"
    assert member.result() == 3
    assert_consistent()


def test_a_group_closes_when_its_last_member_is_cancelled():
    first, second = enqueue_many([add(a=1, b=1), add(a=2, b=2)], together=True)
    drain(limit=1)

    cancel(second.id)

    assert first.group() == 2
    assert_consistent()


def test_it_is_told_after_commit(events):
    handle = enqueue(add(a=1, b=2))
    cancel(handle.id)
    drain()
    assert [event.kind for event in events if event.id == handle.id][-1] == "cancelled"
