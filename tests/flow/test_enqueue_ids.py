"""Ids of one's own, and queueing the same request again."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction

from django_ayework import InvalidWorkId, dependency, enqueue, enqueue_many, get_handle
from django_ayework.models import Edge, Waiter, Work
from tests.app.models import Order
from tests.app.works import add

pytestmark = pytest.mark.django_db


def test_an_id_of_ones_own_is_the_works_id(drain: Any) -> None:
    handle = enqueue(add(a=1, b=2), id="order-17")
    drain()
    assert handle.id == "order-17"
    assert get_handle("order-17").result(timeout=0) == 3


def test_ids_differ_by_case() -> None:
    enqueue(add(a=1, b=2), id="order-a")
    assert not enqueue(add(a=1, b=2), id="order-A").deduplicated
    assert Work.objects.count() == 2


@pytest.mark.parametrize(
    "id",
    ["", "two words", "tab\t", "line\n", "x" * 65, "nul\x00", "\x7f", 17, b"order"],
    ids=repr,
)
def test_an_id_must_be_a_short_printable_word(id: Any) -> None:
    with pytest.raises(InvalidWorkId, match="expected a work id to be 1 to 64 printable characters"):
        enqueue(add(a=1, b=2), id=id)
    assert Work.objects.count() == 0


@pytest.mark.parametrize("id", ["x", "x" * 64, "ünïcode-№1", "a/b:c", "🦊"])
def test_any_printable_word_will_do(id: str) -> None:
    handle = enqueue(add(a=1, b=2), id=id)
    assert Work.objects.get().id == handle.id == id


def test_an_id_that_exists_is_refused_and_the_transaction_goes_on() -> None:
    enqueue(add(a=1, b=2), id="order-17")
    with transaction.atomic():
        with pytest.raises(InvalidWorkId, match="a work 'order-17' exists") as raised:
            enqueue(add(a=3, b=4), id="order-17")
        Order.objects.create(reference="after the refusal")
        enqueue(add(a=5, b=6))
    assert raised.value.id == "order-17"
    assert Order.objects.count() == 1
    assert sorted(Work.objects.values_list("input", flat=True)) == ['{"a":1,"b":2}', '{"a":5,"b":6}']


def test_a_gate_whose_id_exists_is_refused_and_the_transaction_goes_on() -> None:
    first = enqueue(add(a=1, b=2), id="order-17")
    with transaction.atomic():
        with pytest.raises(InvalidWorkId):
            enqueue(dependency([first], [add(a=3, b=4)]), id="order-17")
        Order.objects.create(reference="after the refusal")
    assert Work.objects.count() == 1


def test_an_id_that_is_taken_for_good_is_refused_after_the_work_has_ended(drain: Any) -> None:
    enqueue(add(a=1, b=2), id="order-17")
    drain()
    with pytest.raises(InvalidWorkId):
        enqueue(add(a=1, b=2), id="order-17")


def test_queueing_a_request_again_gives_the_first_handle_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    request = add(a=1, b=2)
    first = enqueue(request)
    with caplog.at_level("INFO"):
        again = enqueue(request, priority=9)
    assert caplog.messages == [f"Works that exist already were not queued again: {request.id}"]
    assert (first.deduplicated, again.deduplicated) == (False, True)
    assert again == first
    row = Work.objects.get()
    assert row.priority == 0


def test_queueing_a_request_again_in_one_transaction_keeps_the_transaction() -> None:
    request = add(a=1, b=2)
    with transaction.atomic():
        enqueue(request)
        assert enqueue(request).deduplicated
        Order.objects.create(reference="after the second")
    assert Work.objects.count() == Order.objects.count() == 1


def test_queueing_a_request_again_after_its_end_runs_nothing(drain: Any) -> None:
    request = add(a=1, b=2)
    enqueue(request)
    drain()
    again = enqueue(request)
    assert again.deduplicated
    assert drain().ran == 0
    assert again.result(timeout=0) == 3


def test_the_handle_of_a_request_queued_again_knows_its_group() -> None:
    requests = [add(a=1, b=1), add(a=2, b=2)]
    enqueue_many(requests, together=True)
    assert enqueue(requests[1]).group_id == requests[0].id


def test_queueing_a_gate_again_adds_no_edges() -> None:
    gate = dependency([add(a=1, b=1)], [add(a=2, b=2)])
    enqueue(gate)
    assert enqueue(gate).deduplicated
    assert (Waiter.objects.count(), Edge.objects.count()) == (1, 1)
