"""Cancelling works and groups that have not ended, and retrying cancelled groups."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_ayework import (
    AlreadyCompleted,
    Context,
    NotRetryable,
    Retry,
    WorkCancelled,
    WorkNotFound,
    acancel,
    aretry,
    cancel,
    complete,
    delete_chains,
    dependency,
    enqueue,
    enqueue_many,
    get_handle,
    retry,
    work,
)
from django_ayework.flow import termination
from django_ayework.flow.settle import Settlement, Success, settle
from django_ayework.models import Attempt, Group, Work
from django_ayework.testing import assert_not_enqueued, drain
from tests.app.works import add, fail
from tests.invariants import assert_consistent
from tests.races.rivals import claim_all

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("consistent")]


@work(name="t.group.root")
def root(ctx: Context) -> Any:
    return ctx.queue([add(a=1, b=1), add(a=2, b=2)]).next([add(a=3, b=3)], condition="all-done")


@work(name="t.group.nested")
def nested(ctx: Context) -> Any:
    works = [add(a=1, b=n) for n in range(5)]
    inner = dependency(on=works, queue=[add(a=5, b=5)], condition="all-done")
    outer = dependency(on=[inner], queue=[add(a=6, b=6)], condition="all-done")
    return ctx.queue([*works, inner, outer])


@work(name="t.group.behind")
def behind(ctx: Context, id: str) -> Any:
    """Two works, and a gate over a work of another group."""
    return ctx.queue([add(a=1, b=1), add(a=2, b=2), dependency(on=[id], queue=[add(a=3, b=3)])])


@work(name="t.group.flaky", retry=Retry(attempts=1))
def flaky(n: int) -> int:
    if Work.objects.filter(status="dead").exists():
        return n
    raise RuntimeError("no luck")


def statuses(group: str) -> list[str]:
    return list(Work.objects.filter(group_id=group).order_by("id").values_list("status", flat=True))


@pytest.mark.parametrize("options", [{}, {"delay": 60}])
def test_a_waiting_work_ends_at_once_and_never_runs(options, events):
    handle = enqueue(add(a=1, b=2), **options)
    assert cancel(handle.id) == handle
    assert handle.state().status == "cancelled"
    assert drain().ran == 0
    with pytest.raises(WorkCancelled):
        handle.result()
    assert [event.kind for event in events if event.id == handle.id][-1] == "cancelled"


@pytest.mark.parametrize(
    ("act", "left"),
    [
        (cancel, ("cancelled", None, "")),
        (lambda id: complete(id, 99), ("success", "99", "")),
        (delete_chains, None),
    ],
    ids=["cancel", "complete", "delete"],
)
def test_the_late_result_of_a_running_work_is_refused(act, left):
    handle = enqueue(add(a=1, b=2))
    [row] = claim_all().values()
    act(handle.id)
    assert settle([Settlement(row, Success("3"))]).refused == [handle.id]
    assert Work.objects.values_list("status", "result", "error").first() == left
    assert not Work.objects.exclude(worker=None).exists()
    assert not Attempt.objects.filter(outcome="success").exists()


def test_a_work_that_has_ended_is_left_alone_and_an_unknown_one_is_refused():
    handle = enqueue(add(a=1, b=2))
    drain()
    with pytest.raises(AlreadyCompleted, match=f"{handle.id} .* has ended already: it is success"):
        cancel(handle.id)
    assert handle.result() == 3
    with pytest.raises(WorkNotFound, match="'nobody'"):
        cancel("nobody")


def test_its_waiters_are_decided_and_a_retry_revives_those_that_died_of_it():
    member = enqueue(add(a=1, b=2))
    needs_success = enqueue(dependency(on=[member], queue=[add(a=8, b=8)]))
    needs_an_end = enqueue(dependency(on=[member], queue=[add(a=9, b=9)], condition="all-done"))
    cancel(member.id)
    assert (needs_success.state().status, needs_success.state().reason) == ("dead", "unsatisfiable")
    assert needs_an_end.state().status == "success"
    retry(member.id)
    assert needs_success.state().status == "blocked"
    drain()
    assert needs_success.state().status == "success"
    assert member.result() == 3


def test_a_cancelled_gate_queues_nothing_and_what_follows_it_closes():
    handle = enqueue(root())
    drain(limit=1)
    gate = Work.objects.get(type="@work/dependency")
    cancel(gate.id)
    drain()
    assert_not_enqueued(add, a=3)
    group = Group.objects.get(id=handle.group_id)
    assert (group.open, group.dead) == (0, 0)


# --- groups ---------------------------------------------------------------------------------------------


def fanned_out() -> Any:
    """A group: its root has ended, two members and the gate over them have not."""
    handle = enqueue(root())
    drain(limit=1)
    assert sorted(statuses(handle.id)) == ["blocked", "pending", "pending", "success"]
    return handle


@pytest.mark.parametrize(
    "cancel_it",
    [
        lambda handle: cancel(group=handle.id),
        lambda handle: cancel(group=handle),
        lambda handle: handle.cancel(),
        lambda handle: get_handle(handle.id).cancel(),
        lambda handle: async_to_sync(acancel)(group=handle.id),
        lambda handle: async_to_sync(handle.acancel)(),
    ],
    ids=["group", "group of a handle", "handle", "another handle", "acancel", "handle.acancel"],
)
def test_all_works_of_a_group_that_have_not_ended_are_cancelled(cancel_it):
    handle = fanned_out()
    live = set(Work.objects.exclude(status="success").values_list("id", flat=True))
    assert set(cancel_it(handle)) == live
    assert sorted(statuses(handle.id)) == ["cancelled", "cancelled", "cancelled", "success"]
    assert drain().ran == 0
    assert handle.group() is None


def test_other_groups_are_left_alone_and_a_work_that_is_alone_is_a_group():
    handle, other = fanned_out(), enqueue(add(a=1, b=1), delay=60)
    handle.cancel()
    assert other.state().status == "scheduled"
    assert cancel(group=other.id) == [other.id]
    assert other.state().status == "cancelled"
    assert other.cancel() == []


def test_the_handle_of_a_member_cancels_the_member():
    first, second, third = enqueue_many([add(a=1, b=n) for n in range(3)], together=True)
    assert second.cancel() == [second.id]
    assert [handle.state().status for handle in (first, second, third)] == ["pending", "cancelled", "pending"]
    assert set(first.cancel()) == {third.id, first.id}
    assert second.cancel() == []


def test_running_works_are_cancelled_with_their_group():
    handles = enqueue_many([add(a=1, b=n) for n in range(2)], together=True)
    claim_all()
    assert len(cancel(group=handles[0])) == 2
    assert {handle.state().status for handle in handles} == {"cancelled"}


@pytest.mark.parametrize("page", [1, 2, 100])
def test_each_page_is_a_transaction_and_no_gate_opens_between_them(monkeypatch, page):
    monkeypatch.setattr(termination, "PAGE", page)
    handle = enqueue(nested())
    drain(limit=1)
    with CaptureQueriesContext(connection) as queries:
        cancelled = cancel(group=handle)
    assert len(cancelled) == 7
    assert Work.objects.count() == 8, "a gate has opened"
    ends = [query["sql"] for query in queries if query["sql"].startswith("RELEASE SAVEPOINT")]
    assert len(ends) >= -(-7 // page)


def test_what_is_no_group_is_refused_and_the_message_says_which_is():
    first, second = enqueue_many([add(a=1, b=n) for n in range(2)], together=True)
    with pytest.raises(WorkNotFound) as raised:
        cancel(group=second.id)
    assert str(raised.value) == (
        f"expected the id of a group, got {second.id!r}, which is a work of the group {first.id!r}; nothing "
        f"was cancelled. Give group={first.id!r} for all works of that group."
    )
    for call, done in ((cancel, "cancelled"), (retry, "retried")):
        with pytest.raises(WorkNotFound, match=f"no group has the id 'nowhere', so nothing was {done}"):
            call(group="nowhere")
    with pytest.raises(WorkNotFound, match="'nowhere'"):
        get_handle("nowhere").cancel()


@pytest.mark.parametrize(("arguments", "got"), [({}, "neither"), ({"id": "a", "group": "b"}, "both")])
def test_either_a_work_or_a_group_is_named(arguments, got):
    for call in (cancel, retry):
        with pytest.raises(TypeError, match=rf"expected either {call.__name__}\(id\) or .* got {got}"):
            call(**arguments)
    with pytest.raises(TypeError, match="without input and again="):
        retry(group="a", again=True)


@pytest.mark.parametrize("retry_it", [retry, async_to_sync(aretry)], ids=["retry", "aretry"])
def test_a_cancelled_group_is_retried_whole_and_runs_to_its_end(retry_it):
    handle = fanned_out()
    cancelled = handle.cancel()
    assert sorted(retry_it(group=handle.id)) == sorted(cancelled)
    assert sorted(statuses(handle.id)) == ["blocked", "pending", "pending", "success"]
    assert_consistent()
    drain()
    assert statuses(handle.id) == ["success"] * 5
    assert handle.group() == 6


def test_what_runs_is_left_alone_when_its_group_is_retried():
    dead, waiting = enqueue_many([flaky(n=1), add(a=1, b=1)], together=True)
    drain(limit=1, raises=False)
    assert retry(group=dead) == [dead.id]
    assert retry(group=dead) == []
    assert (dead.state().status, waiting.state().status) == ("pending", "pending")


def test_what_cannot_be_retried_keeps_nothing_else_from_it_and_is_named():
    outside = enqueue(fail(), retry=Retry(attempts=1))
    drain(raises=False)
    first = enqueue(behind(id=outside.id))
    drain(limit=1)
    gate = Work.objects.get(group_id=first.id, status="dead")
    cancelled = first.cancel()
    with pytest.raises(NotRetryable) as raised:
        retry(group=first)
    assert str(raised.value) == (
        f"expected to retry all dead and cancelled works of the group {first.id}; 2 were, and 1 could not "
        f"be, the first because: the gate {gate.id} still cannot open; retry first the works that it waits "
        f"for: {outside.id}."
    )
    assert list(raised.value.members) == [gate.id]
    assert {get_handle(id).state().status for id in cancelled} == {"pending"}
