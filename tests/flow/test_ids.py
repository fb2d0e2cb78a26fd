"""Ids: those of the caller, and requests that have the id of another."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import transaction

from django_ayework import Context, InvalidWorkId, Retry, dependency, enqueue, enqueue_many, get_handle, work
from django_ayework.define.requests import WorkRequest
from django_ayework.models import Work
from django_ayework.testing import drain
from tests.app.models import Order
from tests.app.works import add, fail

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("id", ["order-17", "x", "x" * 64, "ünïcode-№1", "a/b:c", "🦊"])
def test_any_printable_word_may_be_the_id(id):
    handle = enqueue(add(a=1, b=2), id=id)
    drain()
    assert Work.objects.get().id == handle.id == id
    assert get_handle(id).result(timeout=0) == 3


@pytest.mark.parametrize(
    "id", ["", "two words", "tab\t", "line\n", "x" * 65, "nul\x00", "\x7f", 17, b"order"], ids=repr
)
def test_an_id_must_be_a_short_printable_word(id):
    with pytest.raises(InvalidWorkId, match="expected a work id to be 1 to 64 printable characters"):
        enqueue(add(a=1, b=2), id=id)
    assert Work.objects.count() == 0


def test_ids_differ_by_case():
    enqueue(add(a=1, b=2), id="order-a")
    assert not enqueue(add(a=1, b=2), id="order-A").deduplicated
    assert Work.objects.count() == 2


@pytest.mark.parametrize(
    "second", [lambda: add(a=3, b=4), lambda: dependency(["order-17"], [add(a=3, b=4)])], ids=["work", "gate"]
)
@pytest.mark.parametrize("first_has_ended", [False, True])
def test_an_id_that_exists_is_refused_and_the_transaction_goes_on(second, first_has_ended):
    enqueue(add(a=1, b=2), id="order-17")
    if first_has_ended:
        drain()
    with transaction.atomic():
        with pytest.raises(InvalidWorkId, match="a work 'order-17' exists") as raised:
            enqueue(second(), id="order-17")
        Order.objects.create(reference="after the refusal")
        enqueue(add(a=5, b=6))
    assert raised.value.id == "order-17"
    assert Order.objects.count() == 1
    assert sorted(Work.objects.values_list("input", flat=True)) == ['{"a":1,"b":2}', '{"a":5,"b":6}']


# --- the same request again -----------------------------------------------------------------------------


def test_queueing_a_request_again_gives_the_first_handle_and_logs_it(caplog):
    request = add(a=1, b=2)
    with transaction.atomic():
        first = enqueue(request)
        with caplog.at_level("INFO"):
            again = enqueue(request, priority=9)
        Order.objects.create(reference="after the second")
    assert caplog.messages == [f"Works that exist already were not queued again: {request.id}"]
    assert (first.deduplicated, again.deduplicated) == (False, True)
    assert again == first
    assert Work.objects.get().priority == 0
    assert Order.objects.count() == 1
    drain()
    last = enqueue(request)
    assert last.deduplicated
    assert drain().ran == 0
    assert last.result(timeout=0) == 3


def test_the_handle_of_a_request_queued_again_knows_its_group():
    requests = [add(a=1, b=1), add(a=2, b=2)]
    enqueue_many(requests, together=True)
    assert enqueue(requests[1]).group_id == requests[0].id


# --- AYEWORK["ID"] makes an id twice --------------------------------------------------------------------


@pytest.fixture
def ids(settings: Any) -> list[str]:
    """The ids to make next; after them come ids of their own."""
    made: list[str] = []
    others: Iterator[int] = itertools.count()
    settings.AYEWORK = {"ID": lambda: made.pop(0) if made else f"other-{next(others)}"}
    return made


def requests_of(ids: list[str], *make: Callable[[], WorkRequest[Any, Any]]) -> list[WorkRequest[Any, Any]]:
    """Return requests that have the same id."""
    ids.extend(["same"] * len(make))
    return [one() for one in make]


WAYS: dict[str, Callable[[WorkRequest[Any, Any]], object]] = {
    "plain": enqueue,
    "delay": lambda request: enqueue(request, delay=60),
    "skip_queue": lambda request: enqueue(request, skip_queue=True),
    "blockers": lambda request: enqueue(request, blockers=[enqueue(add(a=0, b=0))]),
    "many": lambda request: enqueue_many([add(a=0, b=0), request]),
    "together": lambda request: enqueue_many([add(a=0, b=0), request], together=True),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("make", [lambda: add(a=2, b=2), fail], ids=["another input", "another type"])
def test_another_work_is_refused_and_the_transaction_goes_on(ids, way, make):
    first, second = requests_of(ids, lambda: add(a=1, b=2), make)
    enqueue(first)
    with transaction.atomic():
        with pytest.raises(InvalidWorkId, match=r"AYEWORK\['ID'\].*'same' exists") as refused:
            WAYS[way](second)
        Order.objects.create(reference="after")
    assert refused.value.id == "same"
    assert json.loads(Work.objects.get(id="same").input) == {"a": 1, "b": 2}
    assert Order.objects.exists()


@pytest.mark.parametrize("way", WAYS)
def test_the_same_request_may_be_queued_again(ids, way):
    [request] = requests_of(ids, lambda: add(a=1, b=2))
    enqueue(request)
    WAYS[way](request)
    assert Work.objects.filter(id="same").count() == 1


def test_a_gate_is_not_taken_for_another_one(ids):
    watched = enqueue(add(a=0, b=0))
    released = [add(a=1, b=1), add(a=2, b=2)]
    first, second = requests_of(
        ids, lambda: dependency([watched], released[:1]), lambda: dependency([watched], released[1:])
    )
    assert not enqueue(first).deduplicated
    assert enqueue(first).deduplicated
    with pytest.raises(InvalidWorkId, match="'same' exists"):
        enqueue(second)


def test_different_works_of_one_batch_are_refused(ids):
    requests = requests_of(ids, lambda: add(a=1, b=2), lambda: add(a=2, b=2))
    with pytest.raises(InvalidWorkId, match="'same' exists"):
        enqueue_many(requests)
    assert not Work.objects.exists()


def test_a_work_that_a_handler_queues_fails_its_attempt(ids):
    [request, child] = requests_of(ids, lambda: add(a=1, b=2), lambda: add(a=2, b=2))
    enqueue(request)

    @work(name="repeated_ids.parent", retry=Retry(attempts=1))
    def parent(ctx: Context) -> Any:
        return ctx.queue([child])

    handle = enqueue(parent())
    drain(raises=False)
    state = handle.state()
    assert state.status == "dead"
    assert state.error is not None and "'same' exists" in state.error


class Salted:
    """A codec that makes another text of the same value each time."""

    salts = itertools.count()

    def encode(self, value: Any) -> str:
        return json.dumps([next(self.salts), value])

    def decode(self, text: str) -> Any:
        return json.loads(text)[1]


def test_inputs_are_compared_by_their_values(ids):
    @work(name="repeated_ids.salted", codec=Salted())
    def salted(number: int) -> None: ...

    first, second = requests_of(ids, lambda: salted(number=1), lambda: salted(number=2))
    enqueue(first)
    assert enqueue(first).deduplicated
    with pytest.raises(InvalidWorkId, match="another input"):
        enqueue(second)
