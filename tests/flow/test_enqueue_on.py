"""``enqueue_on``: a signal queues works in its own transaction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction
from django.db.models.signals import post_save
from django.dispatch import Signal

from django_ayework import enqueue_on
from django_ayework.models import Work
from tests.app.models import Order
from tests.app.works import add, pay

pytestmark = pytest.mark.django_db


def pay_new(instance: Order, created: bool, **keywords: Any) -> Any:
    return pay(order_id=instance.pk) if created else None


@pytest.fixture
def paying() -> Iterator[Any]:
    """Works for new orders; yields what disconnects it."""
    disconnect = enqueue_on(post_save, sender=Order, make_work=pay_new, dispatch_uid="t.pay")
    yield disconnect
    disconnect()


def test_a_saved_order_queues_its_work(paying: Any, drain: Any) -> None:
    order = Order.objects.create(reference="A1")
    assert Work.objects.get().type == "shop.pay"
    drain()
    order.refresh_from_db()
    assert order.paid


def test_the_work_is_queued_in_the_signals_transaction(paying: Any) -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        Order.objects.create(reference="A1")
        assert Work.objects.count() == 1
        _ = 1 / 0
    assert Work.objects.count() == 0


def test_none_queues_nothing(paying: Any) -> None:
    order = Order.objects.create(reference="A1")
    order.save()
    order.save()
    assert Work.objects.count() == 1


def test_the_function_returned_disconnects(paying: Any) -> None:
    paying()
    Order.objects.create(reference="A1")
    assert Work.objects.count() == 0


def test_a_dispatch_uid_connects_once(paying: Any) -> None:
    enqueue_on(post_save, sender=Order, make_work=pay_new, dispatch_uid="t.pay")
    Order.objects.create(reference="A1")
    assert Work.objects.count() == 1


def test_another_sender_is_not_listened_to(paying: Any) -> None:
    post_save.send(sender=Work, instance=Order(pk=1), created=True)
    assert Work.objects.count() == 0


def test_the_function_is_given_the_signals_keywords_and_sender() -> None:
    signal, given = Signal(), {}

    def make(**keywords: Any) -> Any:
        given.update(keywords)
        return add(a=keywords["a"], b=0)

    disconnect = enqueue_on(signal, make_work=make)
    signal.send(sender="shop", a=5)
    disconnect()
    signal.send(sender="shop", a=6)
    assert given == {"sender": "shop", "a": 5}
    assert Work.objects.get().input == '{"a":5,"b":0}'
