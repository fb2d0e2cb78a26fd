"""Queueing one work: what is stored, and how little it costs."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_ayework import Status, UnknownWorkType, aenqueue, enqueue, get_handle
from django_ayework.models import Work
from tests.app.models import Order
from tests.app.works import add, notify


@pytest.mark.django_db(transaction=True)
def test_queueing_costs_a_single_insert() -> None:
    with CaptureQueriesContext(connection) as queries:
        handle = enqueue(add(a=1, b=2), priority=3, queue="mail")
    assert [query["sql"].split()[0] for query in queries] == ["INSERT"]
    assert Work.objects.get().id == handle.id


@pytest.mark.django_db(transaction=True)
def test_queueing_in_a_transaction_adds_a_single_insert_to_it() -> None:
    with transaction.atomic(), CaptureQueriesContext(connection) as queries:
        add.enqueue(a=1, b=2)
    assert [query["sql"].split()[0] for query in queries] == ["INSERT"]


@pytest.mark.django_db
def test_a_new_work_is_pending_and_alone() -> None:
    state = enqueue(add(a=1, b=2)).state()
    assert state is not None
    assert (state.type, state.queue, state.status) == ("shop.add", "default", Status.PENDING)
    assert (state.attempt, state.attempts) == (0, 3)
    assert state.group_id == state.chain_id == state.id
    assert (state.result, state.error, state.last_error, state.reason) == (None, None, None, None)
    assert (state.started_at, state.ended_at, state.worker, state.completed_by) == (None, None, None, None)
    assert state.start_at == state.queued_at


@pytest.mark.django_db
def test_the_shorthand_of_a_type_queues_without_options() -> None:
    handle = notify.enqueue(order_id=7)
    state = handle.state()
    assert state is not None
    assert (state.type, state.queue) == ("shop.notify", "mail")


@pytest.mark.django_db
def test_building_a_request_queues_nothing_but_has_an_id(drain: Any) -> None:
    request = add(1, b=2)
    assert get_handle(request.id).state() is None
    assert Work.objects.count() == 0
    assert enqueue(request).id == request.id


@pytest.mark.django_db
def test_a_work_can_be_queued_by_name(drain: Any) -> None:
    handle = enqueue("shop.add", {"a": 1, "b": 2}, priority=4)
    drain()
    assert handle.result(timeout=0) == 3


@pytest.mark.django_db
def test_a_work_without_inputs_can_be_queued_by_its_name_alone(drain: Any) -> None:
    handle = enqueue("shop.fail")
    assert Work.objects.get(id=handle.id).input == "{}"


@pytest.mark.django_db
def test_an_unknown_name_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(UnknownWorkType, match=r"no work is named 'shop\.ad'\. Did you mean 'shop\.add'\?"):
        enqueue("shop.ad", {"a": 1, "b": 2})


@pytest.mark.django_db
def test_the_object_a_work_is_about_is_stored() -> None:
    order = Order.objects.create(reference="A1")
    handle = enqueue(add(a=1, b=2), about=order)
    row = Work.objects.get(id=handle.id)
    assert (row.about_type, row.about_id) == ("shop.order", str(order.pk))


@pytest.mark.django_db
def test_an_object_that_is_not_saved_cannot_be_what_a_work_is_about() -> None:
    with pytest.raises(ValueError, match="expected about to be a saved model object, got: <Order: A1>"):
        enqueue(add(a=1, b=2), about=Order(reference="A1"))


@pytest.mark.django_db(transaction=True)
def test_the_async_twins_queue_the_same() -> None:
    async def queue() -> list[Any]:
        return [
            await aenqueue(add(a=1, b=2), priority=5),
            await aenqueue("shop.add", {"a": 1, "b": 2}),
            await aenqueue("shop.fail"),
            await add.aenqueue(a=3, b=4),
        ]

    handles = async_to_sync(queue)()
    assert [handle.state().type for handle in handles] == ["shop.add", "shop.add", "shop.fail", "shop.add"]
    assert handles[0].state().priority == 5
