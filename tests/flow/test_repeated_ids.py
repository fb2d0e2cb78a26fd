"""``AYEWORK["ID"]`` that makes an id twice: no work is taken for another one."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import transaction

from django_ayework import Context, InvalidWorkId, Retry, dependency, enqueue, enqueue_many, work
from django_ayework.define.requests import WorkRequest
from django_ayework.models import Work
from tests.app.models import Order
from tests.app.works import add, fail

pytestmark = pytest.mark.django_db


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
def test_another_work_is_refused_and_the_transaction_goes_on(ids: list[str], way: str, make: Any) -> None:
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
def test_the_same_request_may_be_queued_again(ids: list[str], way: str) -> None:
    [request] = requests_of(ids, lambda: add(a=1, b=2))
    enqueue(request)
    WAYS[way](request)
    assert Work.objects.filter(id="same").count() == 1


def test_a_gate_is_not_taken_for_another_one(ids: list[str]) -> None:
    watched = enqueue(add(a=0, b=0))
    released = [add(a=1, b=1), add(a=2, b=2)]
    first, second = requests_of(
        ids, lambda: dependency([watched], released[:1]), lambda: dependency([watched], released[1:])
    )
    assert not enqueue(first).deduplicated
    assert enqueue(first).deduplicated
    with pytest.raises(InvalidWorkId, match="'same' exists"):
        enqueue(second)


def test_different_works_of_one_batch_are_refused(ids: list[str]) -> None:
    requests = requests_of(ids, lambda: add(a=1, b=2), lambda: add(a=2, b=2))
    with pytest.raises(InvalidWorkId, match="'same' exists"):
        enqueue_many(requests)
    assert not Work.objects.exists()


def test_a_work_that_a_handler_queues_fails_its_attempt(ids: list[str], drain: Any) -> None:
    [request, child] = requests_of(ids, lambda: add(a=1, b=2), lambda: add(a=2, b=2))
    enqueue(request)

    @work(name="repeated_ids.parent", retry=Retry(attempts=1))
    def parent(ctx: Context) -> Any:
        return ctx.queue([child])

    handle = enqueue(parent())
    drain(raises=False)
    state = handle.state()
    assert state is not None
    assert state.status == "dead"
    assert state.error is not None and "'same' exists" in state.error


class Salted:
    """A codec that makes another text of the same value each time."""

    salts = itertools.count()

    def encode(self, value: Any) -> str:
        return json.dumps([next(self.salts), value])

    def decode(self, text: str) -> Any:
        return json.loads(text)[1]


def test_inputs_are_compared_by_their_values(ids: list[str]) -> None:
    @work(name="repeated_ids.salted", codec=Salted())
    def salted(number: int) -> None: ...

    first, second = requests_of(ids, lambda: salted(number=1), lambda: salted(number=2))
    enqueue(first)
    assert enqueue(first).deduplicated
    with pytest.raises(InvalidWorkId, match="another input"):
        enqueue(second)
