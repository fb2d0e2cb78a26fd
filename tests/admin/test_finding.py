"""Finding works: what a term names, the order of each status, filters by worker, label and day."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.utils.timezone import localdate

from django_ayework import enqueue, enqueue_many, work
from django_ayework.admin.finding import search_for
from django_ayework.models import Work
from django_ayework.rules.states import Status
from django_ayework.store.database import clock
from django_ayework.testing.factories import DeadLetterFactory, WorkFactory
from tests.admin.kit import address, ids_on
from tests.admin.test_lists import LIST, found
from tests.app.models import Order
from tests.app.works import add, pay
from tests.outputs.works import fetch, store

pytestmark = pytest.mark.django_db


@work(name="lists.secret", redact=["pin"])
def secret(pin: str) -> None: ...


@pytest.mark.parametrize("term", ["order-17", "0199f3a1-72c4-7a11-9a3e-2f6d2c90b7e1"])
def test_ids_are_found_through_indexes(term: str) -> None:
    WorkFactory.create_batch(50)
    WorkFactory(id=term)
    search = search_for(term)
    assert not search.is_broad
    if connection.vendor == "sqlite":
        assert "SCAN" not in Work.objects.filter(search.condition).explain()


def test_works_are_found_by_what_names_them(operator: Client) -> None:
    order, other = Order.objects.create(reference="A"), Order.objects.create(reference="B")
    works = {"own": enqueue(add(a=1, b=2), id="order-17"), "generated": enqueue(add(a=1, b=2))}
    works |= {unit: enqueue(fetch(), unit=unit) for unit in ("page/7", "page/70", "page/7 and more")}
    works |= {"stored": enqueue(store(), unit="page/7"), "about": enqueue(pay(order_id=1), about=order)}
    enqueue(pay(order_id=2), about=other)
    members = enqueue_many([add(a=1, b=1), add(a=2, b=2)], together=True)
    for step in range(2):
        WorkFactory(id=f"step-{step}", chain_id="chain-1", chain_index=step)
    expected = {
        works["generated"].id: [works["generated"].id],
        " order-17 ": ["order-17"],
        "order-1": [],
        members[0].group_id: [member.id for member in reversed(members)],
        "chain-1": ["step-1", "step-0"],
        "page/7": [works["stored"].id, works["page/7"].id],
        "out.fetch:page/7": [works["page/7"].id],
        "out.store:page/7": [works["stored"].id],
        f"shop.order:{order.pk}": [works["about"].id],
        f"shop.Order:{order.pk}": [works["about"].id],
    }
    assert {term: found(operator, term) for term in expected} == expected
    in_group = ids_on(operator.get(address(LIST, group_id=members[0].group_id)))
    assert in_group == expected[members[0].group_id]


def test_no_search_tells_what_is_redacted(operator: Client) -> None:
    known = WorkFactory(type="lists.secret", input='{"pin":"4711"}')
    gone = WorkFactory(
        type="gone.forever", input='{"pin":"4711"}', options='{"retry":[1,1,1,1,0],"redact":["pin"]}'
    )
    shown = WorkFactory(type="shop.add", input='{"a":"4711"}')
    assert found(operator, "4711") == [shown.id]
    assert set(found(operator, known.id)) | set(found(operator, gone.id)) == {known.id, gone.id}


@pytest.mark.parametrize("status", list(Status))
def test_each_status_has_its_order_alone_and_with_a_type(operator: Client, status: Status) -> None:
    ids = {
        WorkFactory(status=status, type=type, queue=queue).id
        for type in ("shop.add", "shop.fail")
        for queue in "ab"
    }
    for other in Status:
        if other != status:
            WorkFactory(status=other)
    assert set(ids_on(operator.get(address(LIST, status=status)))) == ids
    assert len(ids_on(operator.get(address(LIST, status=status, type="shop.add")))) == 2
    assert len(ids_on(operator.get(address(LIST, status=status, type="shop.add", queue="a")))) == 1
    assert len(ids_on(operator.get(address(LIST, status=status, queue="a")))) == 2
    assert ids_on(operator.get(address(LIST, status="lost"))) == []


def test_filters_by_type_queue_reason_worker_label_and_day(operator: Client) -> None:
    now = clock.now()
    dead, mail = DeadLetterFactory(), WorkFactory(type="shop.notify", queue="mail")
    assert ids_on(operator.get(address(LIST, reason="exhausted"))) == [dead.id]
    assert ids_on(operator.get(address(LIST, reason="expired"))) == []
    assert ids_on(operator.get(address(LIST, type="shop.notify"))) == [mail.id]
    assert ids_on(operator.get(address(LIST, queue="mail"))) == [mail.id]
    runs = WorkFactory(status="running", worker="w-1", fairness="a")
    ended = WorkFactory(status="success", completed_by="w-1", queued_at=now - timedelta(days=2), fairness="b")
    assert ids_on(operator.get(address(LIST, worker="w-1"))) == [runs.id, ended.id]
    assert ids_on(operator.get(address(LIST, fairness="b"))) == [ended.id]
    day = localdate(now - timedelta(days=2)).isoformat()
    assert ids_on(operator.get(address(LIST, day=day))) == [ended.id]
    assert ids_on(operator.get(address(LIST, day=day, worker="w-1", type="shop.fail"))) == []
    for odd in ("yesterday", "2026-99-99", "9999-12-31"):
        assert operator.get(address(LIST, day=odd)).status_code == 200
    assert operator.get(address(LIST, older="nonsense")).status_code == 200


def test_a_rare_type_is_found_by_its_ended_status_however_old_it_is(operator: Client, monkeypatch) -> None:
    monkeypatch.setattr("django_ayework.admin.finding.LOOKED_AT", 3)
    old = clock.now() - timedelta(days=1)
    rare = WorkFactory(type="lists.rare", status=Status.SUCCESS, queued_at=old)
    WorkFactory.create_batch(5)
    hint = "An ended status beside the type finds all of its works."
    page = operator.get(address(LIST, type="lists.rare"))
    assert ids_on(page) == []
    assert hint in page.content.decode()
    page = operator.get(address(LIST, type="lists.rare", status="success"))
    assert ids_on(page) == [rare.id]
    assert hint not in page.content.decode()
