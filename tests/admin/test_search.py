"""Searching works."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test import Client

from django_ayework import cancel, enqueue, enqueue_many
from django_ayework.admin import lists
from django_ayework.admin.lists import search
from django_ayework.models import Work
from django_ayework.testing.factories import WorkFactory
from tests.admin.kit import address, die, ids_on
from tests.app.models import Order
from tests.app.works import add, notify, pay
from tests.outputs.works import fetch, store

pytestmark = pytest.mark.django_db


def found(client: Client, term: str, page: str = "work_changelist") -> list[str]:
    return ids_on(client.get(address(page, q=term)))


def test_a_work_is_found_by_its_id(operator: Client) -> None:
    handles = [enqueue(add(a=1, b=2)), enqueue(add(a=1, b=2), id="order-17"), enqueue(add(a=1, b=2))]
    assert found(operator, handles[0].id) == [handles[0].id]
    assert found(operator, " order-17 ") == ["order-17"]
    assert found(operator, "order-1") == []


def test_works_are_found_by_their_group(operator: Client) -> None:
    together = enqueue_many([add(a=1, b=1), add(a=2, b=2)], together=True)
    assert sorted(found(operator, together[0].group_id)) == sorted(handle.id for handle in together)


def test_works_are_found_by_the_beginning_of_their_type(operator: Client) -> None:
    mail, payment = enqueue(notify(order_id=1)), enqueue(pay(order_id=1))
    assert found(operator, "shop.no") == [mail.id]
    assert found(operator, "shop") == [payment.id, mail.id]


def test_works_of_a_type_whose_code_is_gone_are_found(operator: Client) -> None:
    work = WorkFactory(type="gone.forever")
    assert found(operator, "gone.") == [work.id]


def test_works_are_found_by_what_they_are_about(operator: Client) -> None:
    order, other = Order.objects.create(reference="A"), Order.objects.create(reference="B")
    handle = enqueue(pay(order_id=order.pk), about=order)
    enqueue(pay(order_id=other.pk), about=other)
    assert found(operator, f"shop.order:{order.pk}") == [handle.id]
    assert found(operator, f"shop.Order:{order.pk}") == [handle.id]


def test_works_are_found_by_their_unit(operator: Client) -> None:
    handles = [enqueue(fetch(), unit=unit) for unit in ("page/7", "page/70", "page/7 and more")]
    other = enqueue(store(), unit="page/7")
    assert found(operator, "out.fetch:page/7") == [handles[0].id]
    assert found(operator, "out.store:page/7") == [other.id]


def test_the_page_of_a_work_leads_to_all_works_of_its_unit(operator: Client) -> None:
    handles = []
    for _ in range(2):
        handles.append(enqueue(fetch(), unit="page/7").id)
        cancel(handles[-1])
    enqueue(fetch(), unit="page/8")
    shown = operator.get(address("work_change", handles[0])).content.decode()
    query = "?type=out.fetch&amp;unit=page%2F7"
    assert query in shown
    listed = operator.get(address("work_changelist") + query.replace("&amp;", "&"))
    assert ids_on(listed) == handles[::-1]
    assert "<b>page/7</b>" in listed.content.decode()


def test_an_id_that_looks_like_a_type_is_found_however_old(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "LOOKED_AT", 3)
    WorkFactory(id="!", type="x")
    WorkFactory(id="#shop.add", type="x")  # sorts before all generated ids
    enqueue_many([add(a=number, b=0) for number in range(5)])
    assert found(operator, "#shop.add") == ["#shop.add"]


def test_dead_letters_are_found_the_same_way(operator: Client) -> None:
    dead = die()
    assert found(operator, dead.id, "deadletter_changelist") == [dead.id]
    assert found(operator, "shop.f", "deadletter_changelist") == [dead.id]
    assert found(operator, "shop.add", "deadletter_changelist") == []


@pytest.mark.parametrize(
    "term", ["shop.order:17", "out.fetch:page/7", "0199f3a1-72c4-7a11-9a3e-2f6d2c90b7e1"]
)
def test_ids_and_objects_are_found_through_indexes(term: str) -> None:
    WorkFactory.create_batch(50)
    plan = search(Work.objects.all(), term).explain()
    if connection.vendor == "sqlite":
        assert "SCAN" not in plan
