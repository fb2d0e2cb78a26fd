"""Cancelling and retrying whole groups."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_ayework import (
    Context,
    NotRetryable,
    Retry,
    WorkNotFound,
    acancel,
    aretry,
    cancel,
    dependency,
    enqueue,
    enqueue_many,
    get_handle,
    retry,
    work,
)
from django_ayework.flow import acting
from django_ayework.models import Work
from django_ayework.testing import drain
from tests.app.works import add, fail
from tests.invariants import assert_consistent
from tests.races.rivals import claim_all

pytestmark = pytest.mark.django_db


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
def test_all_works_of_a_group_that_have_not_ended_are_cancelled(cancel_it: Any) -> None:
    handle = fanned_out()
    live = set(Work.objects.exclude(status="success").values_list("id", flat=True))

    assert set(cancel_it(handle)) == live

    assert sorted(statuses(handle.id)) == ["cancelled", "cancelled", "cancelled", "success"]
    assert drain().ran == 0
    assert handle.group() is None
    assert_consistent()


def test_other_groups_are_left_alone() -> None:
    handle, other = fanned_out(), enqueue(add(a=1, b=1))
    handle.cancel()
    assert other.state().status == "pending"


def test_a_work_that_is_alone_is_a_group() -> None:
    handle = enqueue(add(a=1, b=1), delay=60)
    assert cancel(group=handle.id) == [handle.id]
    assert handle.state().status == "cancelled"
    assert handle.cancel() == []


def test_the_handle_of_a_member_cancels_the_member() -> None:
    first, second, third = enqueue_many([add(a=1, b=n) for n in range(3)], together=True)
    assert second.cancel() == [second.id]
    assert [handle.state().status for handle in (first, second, third)] == ["pending", "cancelled", "pending"]
    assert set(first.cancel()) == {third.id, first.id}
    assert second.cancel() == []


def test_a_running_work_is_cancelled_with_its_group_and_told() -> None:
    handles = enqueue_many([add(a=1, b=n) for n in range(2)], together=True)
    claim_all()
    assert len(cancel(group=handles[0])) == 2
    assert {handle.state().status for handle in handles} == {"cancelled"}


@pytest.mark.parametrize("page", [1, 2, 100])
def test_each_page_is_a_transaction_and_no_gate_opens_between_them(
    monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    monkeypatch.setattr(acting, "PAGE", page)
    handle = enqueue(nested())
    drain(limit=1)

    with CaptureQueriesContext(connection) as queries:
        cancelled = cancel(group=handle)

    assert len(cancelled) == 7
    assert Work.objects.count() == 8, "a gate has opened"
    ends = [query["sql"] for query in queries if query["sql"].startswith("RELEASE SAVEPOINT")]
    assert len(ends) >= -(-7 // page)
    assert_consistent()


def test_no_such_group() -> None:
    with pytest.raises(WorkNotFound, match="no group has the id 'nowhere', so nothing was cancelled"):
        cancel(group="nowhere")
    with pytest.raises(WorkNotFound, match="'nowhere'"):
        get_handle("nowhere").cancel()
    with pytest.raises(WorkNotFound, match="no group has the id 'nowhere', so nothing was retried"):
        retry(group="nowhere")


def test_a_member_is_no_group_and_the_message_says_which_is() -> None:
    first, second = enqueue_many([add(a=1, b=n) for n in range(2)], together=True)
    with pytest.raises(WorkNotFound) as raised:
        cancel(group=second.id)
    assert str(raised.value) == (
        f"expected the id of a group, got {second.id!r}, which is a work of the group {first.id!r}; nothing "
        f"was cancelled. Give group={first.id!r} for all works of that group."
    )


@pytest.mark.parametrize(("arguments", "got"), [({}, "neither"), ({"id": "a", "group": "b"}, "both")])
def test_either_a_work_or_a_group_is_named(arguments: Any, got: str) -> None:
    for call in (cancel, retry):
        with pytest.raises(TypeError, match=rf"expected either {call.__name__}\(id\) or .* got {got}"):
            call(**arguments)
    with pytest.raises(TypeError, match="without input and again="):
        retry(group="a", again=True)  # type: ignore[call-overload]


@pytest.mark.parametrize("retry_it", [retry, async_to_sync(aretry)], ids=["retry", "aretry"])
def test_a_cancelled_group_is_retried_whole_and_runs_to_its_end(retry_it: Any) -> None:
    handle = fanned_out()
    cancelled = handle.cancel()

    assert sorted(retry_it(group=handle.id)) == sorted(cancelled)

    assert sorted(statuses(handle.id)) == ["blocked", "pending", "pending", "success"]
    assert_consistent()
    drain()
    assert statuses(handle.id) == ["success"] * 5
    assert handle.group() == 6


def test_what_runs_is_left_alone_when_its_group_is_retried() -> None:
    dead, waiting = enqueue_many([flaky(n=1), add(a=1, b=1)], together=True)
    drain(limit=1, raises=False)
    assert retry(group=dead) == [dead.id]
    assert retry(group=dead) == []
    assert (dead.state().status, waiting.state().status) == ("pending", "pending")


def test_what_cannot_be_retried_keeps_nothing_else_from_it_and_is_named() -> None:
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
        f"be, the first because: the gate {gate.id} still cannot open; retry first what it waits for: "
        f"{outside.id}."
    )
    assert list(raised.value.members) == [gate.id]
    assert {get_handle(id).state().status for id in cancelled} == {"pending"}
