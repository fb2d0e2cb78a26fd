"""A work is queued in the caller's transaction: it shares its fate."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction

from django_ayework import WorkNotFound, enqueue, enqueue_many
from django_ayework.flow.notify import due_works
from django_ayework.models import Work
from django_ayework.signals import work_queued
from tests.app.models import Order
from tests.app.works import add, pay

pytestmark = pytest.mark.django_db(transaction=True)


class Oops(Exception):
    """Rolls a block back."""


@pytest.fixture
def wakes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry per wake-up of this process's workers."""
    heard: list[str] = []
    monkeypatch.setattr(due_works, "publish", lambda due: heard.append("wake"))
    return heard


@pytest.fixture
def queued() -> Any:
    """The ids that ``work_queued`` tells of."""
    heard: list[str] = []

    def receiver(work: Any, **keywords: Any) -> None:
        heard.append(work.id)

    work_queued.connect(receiver)
    yield heard
    work_queued.disconnect(receiver)


def test_a_rollback_takes_the_work_with_it(wakes: list[str], queued: list[str]) -> None:
    with pytest.raises(Oops), transaction.atomic():
        order = Order.objects.create(reference="A1")
        handle = enqueue(pay(order_id=order.pk))
        assert handle.state() is not None
        raise Oops
    assert Work.objects.count() == Order.objects.count() == 0
    assert handle.state() is None
    assert (wakes, queued) == ([], [])
    with pytest.raises(WorkNotFound, match="its transaction was rolled back"):
        handle.result(timeout=0)


def test_a_savepoint_that_is_rolled_back_takes_only_its_own_works(
    wakes: list[str], queued: list[str]
) -> None:
    with transaction.atomic():
        kept = enqueue(add(a=1, b=1))
        with pytest.raises(Oops), transaction.atomic():
            lost = enqueue(add(a=2, b=2))
            enqueue_many([add(a=3, b=3), add(a=4, b=4)])
            raise Oops
        assert lost.state() is None
        assert queued == []
    assert [row.id for row in Work.objects.all()] == [kept.id]
    assert queued == [kept.id]
    assert wakes == ["wake"]


def test_nobody_is_told_before_the_commit(wakes: list[str], queued: list[str]) -> None:
    with transaction.atomic():
        handle = enqueue(add(a=1, b=1))
        assert (wakes, queued) == ([], [])
    assert (wakes, queued) == (["wake"], [handle.id])


def test_without_a_transaction_workers_are_woken_at_once(wakes: list[str], queued: list[str]) -> None:
    handle = enqueue(add(a=1, b=1))
    assert (wakes, queued) == (["wake"], [handle.id])


def test_a_work_for_later_wakes_nobody(wakes: list[str]) -> None:
    enqueue(add(a=1, b=1), delay=2 * 3600)
    assert wakes == []
