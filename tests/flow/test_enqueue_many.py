"""Queueing many works: all or none, each its own group or all together."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction

from django_ayework import (
    Context,
    NotEncodable,
    aenqueue_many,
    dependency,
    enqueue,
    enqueue_many,
    work,
)
from django_ayework.models import Group, Work
from tests.app.models import Order
from tests.app.works import add, fail

pytestmark = pytest.mark.django_db


@work(name="t.many.branch")
def branch(ctx: Context, n: int):
    return ctx.queue([add(a=n, b=0)])


def test_handles_come_in_the_order_given() -> None:
    requests = [add(a=n, b=0) for n in range(20)]
    handles = enqueue_many(reversed(requests))
    assert [handle.id for handle in handles] == [request.id for request in reversed(requests)]
    assert not any(handle.deduplicated for handle in handles)


def test_works_are_groups_of_their_own(drain: Any) -> None:
    handles = enqueue_many([add(a=n, b=0) for n in range(3)])
    assert [handle.group_id for handle in handles] == [handle.id for handle in handles]
    assert Group.objects.count() == 0
    drain()
    assert [handle.group(timeout=0) for handle in handles] == [0, 1, 2]


def test_options_apply_to_each() -> None:
    handles = enqueue_many([add(a=n, b=0) for n in range(3)], priority=7, queue="mail", delay=60)
    states = [handle.state() for handle in handles]
    assert {(state.priority, state.queue, state.status) for state in states if state} == {
        (7, "mail", "scheduled")
    }


def test_nothing_is_queued_when_one_cannot_be() -> None:
    with pytest.raises(NotEncodable):
        enqueue_many([add(a=1, b=2), add(a=object(), b=2)])
    with pytest.raises(TypeError, match="expected"):
        enqueue_many([add(a=1, b=2), "shop.add"])  # type: ignore[arg-type]
    assert Work.objects.count() == 0


def test_an_id_is_refused_because_it_cannot_be_several_works() -> None:
    with pytest.raises(TypeError, match=r"enqueue_many\(\) takes no id="):
        enqueue_many([add(a=1, b=2)], id="one")
    assert Work.objects.count() == 0


def test_an_empty_list_queues_nothing() -> None:
    assert enqueue_many([]) == []
    assert enqueue_many([], together=True) == []


def test_ten_thousand_works_at_once() -> None:
    handles = enqueue_many([add(a=n, b=0) for n in range(10_000)])
    assert len({handle.id for handle in handles}) == 10_000
    assert Work.objects.filter(status="pending").count() == 10_000
    assert Work.objects.get(id=handles[9_999].id).input == '{"a":9999,"b":0}'


def test_a_request_twice_in_the_list_is_one_work() -> None:
    request = add(a=1, b=2)
    handles = enqueue_many([request, add(a=3, b=4), request])
    assert [handle.deduplicated for handle in handles] == [False, False, True]
    assert handles[0] == handles[2]
    assert Work.objects.count() == 2


def test_a_request_queued_before_is_left_alone_and_the_rest_is_queued() -> None:
    known = add(a=1, b=2)
    enqueue(known)
    with transaction.atomic():
        handles = enqueue_many([add(a=3, b=4), known, add(a=5, b=6)], priority=5)
        Order.objects.create(reference="after")
    assert [handle.deduplicated for handle in handles] == [False, True, False]
    assert Work.objects.count() == 3
    assert Work.objects.get(id=known.id).priority == 0
    assert Order.objects.count() == 1


def test_together_makes_one_group_that_is_done_when_all_have_ended(drain: Any) -> None:
    handles = enqueue_many([add(a=1, b=0), add(a=2, b=0), add(a=3, b=0)], together=True)
    assert {handle.group_id for handle in handles} == {handles[0].id}
    drain(limit=2)
    group = Group.objects.get()
    assert (group.id, group.open, group.total, group.done_at) == (handles[0].id, 1, 3, None)
    drain()
    group.refresh_from_db()
    assert (group.open, group.dead) == (0, 0)
    assert group.done_at is not None
    assert {handle.group(timeout=0) for handle in handles} == {3}
    assert [handle.result(timeout=0) for handle in handles] == [1, 2, 3]


def test_together_counts_the_dead_and_the_children(drain: Any, time_travel: Any) -> None:
    handles = enqueue_many([branch(n=5), fail()], together=True)
    drain(raises=False)
    for _ in range(3):
        time_travel(60)
        drain(raises=False)
    group = Group.objects.get()
    assert (group.open, group.total, group.dead) == (0, 3, 1)
    assert handles[1].group(timeout=0) == 5


def test_a_single_work_together_is_a_plain_work() -> None:
    enqueue_many([add(a=1, b=0)], together=True)
    assert Group.objects.count() == 0
    assert Work.objects.get().group_id is None


def test_gates_can_be_among_the_many(drain: Any) -> None:
    first, last = add(a=1, b=0), add(a=2, b=0)
    handles = enqueue_many([first, dependency([first], [last])], together=True)
    drain()
    assert handles[0].group(timeout=0) == 2


def test_queueing_a_group_again_changes_nothing(drain: Any) -> None:
    requests = [add(a=1, b=0), add(a=2, b=0)]
    enqueue_many(requests, together=True)
    again = enqueue_many(requests, together=True)
    assert [handle.deduplicated for handle in again] == [True, True]
    assert {handle.group_id for handle in again} == {requests[0].id}
    assert Group.objects.get().total == 2
    drain()
    assert again[0].group(timeout=0) == 2


def test_a_group_forms_without_the_works_that_were_queued_before(drain: Any) -> None:
    known = branch(n=9)
    alone = enqueue(known)
    fresh = [add(a=1, b=0), add(a=2, b=0)]
    handles = enqueue_many([known, *fresh], together=True)
    assert [handle.deduplicated for handle in handles] == [True, False, False]
    assert handles[1].group_id == handles[2].group_id != known.id
    drain()
    assert alone.group(timeout=0) == 9
    assert handles[1].group(timeout=0) == 2


@pytest.mark.django_db(transaction=True)
def test_the_async_twin_queues_the_same() -> None:
    handles = async_to_sync(aenqueue_many)([add(a=1, b=0), add(a=2, b=0)], together=True, priority=3)
    assert {handle.group_id for handle in handles} == {handles[0].id}
    assert set(Work.objects.values_list("priority", flat=True)) == {3}
