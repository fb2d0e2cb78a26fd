"""``on_failure`` is asked where it may query, be it plain or async, whatever the handler is."""

from __future__ import annotations

from typing import Any

import pytest

from django_ayework import Aborted, BatchItem, Retry, batch_work, enqueue, work
from django_ayework.testing import drain, running_worker
from tests.app.models import Order
from tests.processes import eventually


def fails() -> None:
    raise ValueError("no luck")


async def afails() -> None:
    raise ValueError("no luck")


def advise(error: Exception, info: Any) -> str:
    Order.objects.create(reference=f"{info.type} {info.attempt}")
    return "abort"


async def aadvise(error: Exception, info: Any) -> str:
    await Order.objects.acreate(reference=f"{info.type} {info.attempt}")
    return "abort"


both = pytest.mark.parametrize("function", [fails, afails])
hooks = pytest.mark.parametrize("hook", [advise, aadvise])


def state_of(handle: Any) -> Any:
    return eventually(lambda: (state := handle.state()).status in ("success", "dead") and state)


@pytest.mark.django_db(transaction=True)
@both
@hooks
def test_in_a_worker(configure, reported, function, hook):
    configure(ON_FAILURE=hook)
    handle = enqueue(work(name="attempts.case")(function)())
    with running_worker(concurrency=1):
        assert (state_of(handle).reason, reported) == ("aborted", [])
    assert Order.objects.get().reference == "attempts.case 1"


@pytest.mark.django_db
@both
@hooks
def test_in_a_test_case(reported, function, hook):
    handle = enqueue(work(name="attempts.case", on_failure=hook)(function)())
    drain(raises=False)
    assert (state_of(handle).reason, reported) == ("aborted", [])
    assert Order.objects.get().reference == "attempts.case 1"


def batch_raises(items: list[BatchItem[int]]) -> list[int]:
    raise ValueError("no luck")


async def abatch_raises(items: list[BatchItem[int]]) -> list[int]:
    raise ValueError("no luck")


def batch_fails_one(items: list[BatchItem[int]]) -> list[Any]:
    return [ValueError("no luck") for _ in items]


async def abatch_fails_one(items: list[BatchItem[int]]) -> list[Any]:
    return [ValueError("no luck") for _ in items]


@pytest.mark.django_db(transaction=True)
@hooks
@pytest.mark.parametrize("function", [batch_raises, abatch_raises, batch_fails_one, abatch_fails_one])
def test_for_the_works_of_a_batch(configure, reported, function, hook):
    configure()
    declared = batch_work(name="attempts.case", size=2, on_failure=hook)(function)
    handles = [enqueue(declared(number)) for number in range(2)]
    with running_worker(concurrency=1):
        assert [state_of(handle).reason for handle in handles] == ["aborted"] * 2
    assert (Order.objects.count(), reported) == (2, [])


@pytest.mark.django_db
def test_it_is_not_asked_about_an_attempt_that_was_told_to_stop():
    asked: list[Exception] = []

    def stops() -> None:
        raise Aborted("shutdown")

    once = Retry(attempts=1)
    enqueue(
        work(name="attempts.case", retry=once, on_failure=lambda error, info: asked.append(error))(stops)()
    )
    assert drain().dead == 1
    assert not asked
