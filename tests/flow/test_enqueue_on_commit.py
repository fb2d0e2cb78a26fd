"""``on_commit=True``: the work is inserted once the caller's transaction has committed."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction

from django_ayework import ChainNotFound, InvalidWorkId, NotEncodable, enqueue, enqueue_many
from django_ayework.errors import NotEnqueued
from django_ayework.models import Group, Work
from tests.app.models import Order
from tests.app.works import add, pay


@pytest.mark.django_db(transaction=True)
def test_the_work_exists_from_the_commit_on() -> None:
    with transaction.atomic():
        handle = enqueue(add(a=1, b=2), on_commit=True, id="later")
        assert handle.id == "later"
        assert handle.state() is None
        assert Work.objects.count() == 0
    state = handle.state()
    assert state is not None and state.status == "pending"


@pytest.mark.django_db(transaction=True)
def test_a_rollback_queues_nothing() -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        enqueue(add(a=1, b=2), on_commit=True)
        enqueue_many([add(a=1, b=2), add(a=3, b=4)], on_commit=True)
        _ = 1 / 0
    assert Work.objects.count() == 0


@pytest.mark.django_db(transaction=True)
def test_without_a_transaction_it_is_queued_at_once() -> None:
    assert enqueue(add(a=1, b=2), on_commit=True).state() is not None


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("count", [1, 20])
def test_an_insert_that_fails_is_reported_and_keeps_no_other_callback_from_running(
    settings: Any, caplog: Any, count: int
) -> None:
    told: list[Any] = []
    settings.AYEWORK = {"ON_ERROR": lambda error, phase: told.append((error, phase))}
    requests = [add(a=number, b=0) for number in range(count)]
    after: list[str] = []
    with transaction.atomic():
        if count == 1:
            enqueue(requests[0], on_commit=True, blockers=["unknown"])
        else:
            enqueue_many(requests, on_commit=True, blockers=["unknown"])
        enqueue(add(a=1, b=2), on_commit=True, id="behind")
        transaction.on_commit(lambda: after.append("ran"))
    [(error, phase)] = told
    assert isinstance(error, NotEnqueued) and isinstance(error.__cause__, ChainNotFound)
    assert (phase, error.id) == ("commit", requests[0].id)
    assert error.works == tuple((request.id, request.type) for request in requests)
    [record] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert requests[0].id in record.getMessage() and add.name in record.getMessage()
    assert (after, Work.objects.get().id) == (["ran"], "behind")


@pytest.mark.django_db(transaction=True)
def test_an_insert_that_fails_without_a_transaction_is_the_callers() -> None:
    with pytest.raises(ChainNotFound):
        enqueue(add(a=1, b=2), on_commit=True, blockers=["unknown"])


@pytest.mark.django_db
def test_it_works_in_drain(drain: Any) -> None:
    order = Order.objects.create(reference="A1")
    with transaction.atomic():
        handle = enqueue(pay(order_id=order.pk), on_commit=True)
    assert handle.state() is None
    assert drain().succeeded == 1
    order.refresh_from_db()
    assert order.paid


@pytest.mark.django_db
def test_many_keep_their_ids_and_their_group(drain: Any) -> None:
    handles = enqueue_many([add(a=1, b=0), add(a=2, b=0)], together=True, on_commit=True)
    assert Work.objects.count() == Group.objects.count() == 0
    assert {handle.group_id for handle in handles} == {handles[0].id}
    assert drain().succeeded == 2
    assert handles[1].group(timeout=0) == 2


@pytest.mark.django_db
def test_what_is_wrong_with_a_request_shows_at_once() -> None:
    with pytest.raises(NotEncodable):
        enqueue(add(a=object(), b=2), on_commit=True)
    with pytest.raises(InvalidWorkId):
        enqueue(add(a=1, b=2), on_commit=True, id="two words")


@pytest.mark.django_db
def test_an_id_that_exists_is_refused_at_once() -> None:
    enqueue(add(a=1, b=2), id="order-17")
    with pytest.raises(InvalidWorkId, match="a work 'order-17' exists"):
        enqueue(add(a=3, b=4), on_commit=True, id="order-17")


@pytest.mark.django_db
def test_time_counts_from_the_call(drain: Any, time_travel: Any) -> None:
    handle = enqueue(add(a=1, b=2), on_commit=True, delay=60)
    time_travel(61)
    assert drain().succeeded == 1
    assert handle.result(timeout=0) == 3
