"""``work_counts``: how many works there are by queue, type and status."""

from __future__ import annotations

import pytest
from asgiref.sync import async_to_sync

from django_ayework import Status, WorkCount, awork_counts, enqueue, work_counts
from django_ayework.flow import counts, overview
from django_ayework.testing import drain
from django_ayework.testing.factories import WorkFactory
from tests.app.works import add, notify

pytestmark = pytest.mark.django_db


def test_each_queue_type_and_status_with_works_has_a_count() -> None:
    assert work_counts() == []
    for _ in range(2):
        enqueue(add(a=1, b=2))
    drain()
    enqueue(add(a=1, b=2))
    enqueue(add(a=1, b=2), queue="mail")
    enqueue(notify(order_id=1), delay=60)
    for status in ("running", "blocked", "dead", "cancelled"):
        WorkFactory(status=status, type="shop.pay")
    assert work_counts() == [
        WorkCount("default", "shop.add", Status.PENDING, 1),
        WorkCount("default", "shop.add", Status.SUCCESS, 2),
        WorkCount("default", "shop.pay", Status.BLOCKED, 1),
        WorkCount("default", "shop.pay", Status.CANCELLED, 1),
        WorkCount("default", "shop.pay", Status.DEAD, 1),
        WorkCount("default", "shop.pay", Status.RUNNING, 1),
        WorkCount("mail", "shop.add", Status.PENDING, 1),
        WorkCount("mail", "shop.notify", Status.SCHEDULED, 1),
    ]


def test_counts_are_bounded_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for room in (counts, overview):
        monkeypatch.setattr(room, "COUNTED_IN_ALL", 4)
    for status in ("pending", "scheduled", "success"):
        WorkFactory.create_batch(6, status=status)
        WorkFactory(status=status, type="shop.pay", queue="mail")
    found = {each.place: (each.works, each.capped) for each in work_counts()}
    assert found["default", "shop.add", "pending"] == (4, True)
    assert found["mail", "shop.pay", "pending"] == (1, False)
    assert found["default", "shop.add", "success"] == (2, True)
    assert found["mail", "shop.pay", "success"] == (1, False)
    scheduled = [value for place, value in found.items() if place[2] == "scheduled"]
    assert sum(works for works, _ in scheduled) == 4
    assert all(capped for _, capped in scheduled)


def test_it_has_an_awaitable_form() -> None:
    enqueue(add(a=1, b=2))
    assert [each.works for each in async_to_sync(awork_counts)()] == [1]
