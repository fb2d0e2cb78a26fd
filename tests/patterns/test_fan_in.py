"""The page's fan-out and fan-in: a month is billed, then summed up."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from types import SimpleNamespace

import pytest

from django_ayework import enqueue, retry
from django_ayework.testing import drain, running_worker
from tests.patterns.kit import only, run_for, statuses

pytestmark = pytest.mark.django_db
SECTION = "Fan-out and fan-in"
BILLED = {"ann@example.com": 1500, "bob@example.com": 4000}


@pytest.fixture
def invoices(shop):
    """Return a function that gives each customer's invoice."""
    return lambda: dict(shop.models.Invoice.objects.values_list("email", "cents"))


@pytest.fixture
def place(shop):
    """Return a function that places an order in March."""

    def place(email, cents, state="placed", day=date(2026, 3, 5)):
        order = shop.order(email=email, cents=cents, state=state)
        moment = datetime.combine(day, time(12), UTC)
        shop.models.Order.objects.filter(pk=order.pk).update(created=moment)

    return place


@pytest.fixture
def orders(place):
    place("ann@example.com", 1000)
    place("ann@example.com", 500)
    place("ann@example.com", 800, day=date(2026, 4, 1))
    place("bob@example.com", 4000)
    place("bob@example.com", 7000, state="cancelled")


@pytest.fixture
def bob_is_broken(shop, monkeypatch):
    """Bob's invoice cannot be made; return a function that mends it."""
    real = shop.works.Invoice

    def get_or_create(email, **values):
        if email.startswith("bob"):
            raise ValueError("no address")
        return real.objects.get_or_create(email=email, **values)

    broken = SimpleNamespace(objects=SimpleNamespace(get_or_create=get_or_create))
    monkeypatch.setattr(shop.works, "Invoice", broken)
    return lambda: monkeypatch.setattr(shop.works, "Invoice", real)


def test_each_customer_is_billed_once_and_then_the_sum_is_mailed(shop, orders, place, invoices, mailoutbox):
    handle = shop.use()["handle"]
    assert drain().dead == 0
    assert invoices() == BILLED
    assert [mail.body for mail in mailoutbox] == ["2 invoices, 5500 cents in all."]
    assert handle.group(timeout=0) == 5500
    place("ann@example.com", 9000)
    shop.use()
    drain()
    assert invoices() == BILLED
    assert [mail.body for mail in mailoutbox] == ["2 invoices, 5500 cents in all."] * 2


def test_a_month_without_orders_is_summed_up_too(shop, mailoutbox):
    shop.use()
    drain()
    assert [mail.body for mail in mailoutbox] == ["0 invoices, 0 cents in all."]


def test_a_dead_bill_stops_the_summary_until_it_is_retried(shop, orders, invoices, bob_is_broken, mailoutbox):
    handle = shop.use()["handle"]
    run_for(120, raises=False)
    assert (invoices(), len(mailoutbox)) == ({"ann@example.com": 1500}, 0)
    assert only(SimpleNamespace(name="@work/dependency")).reason == "unsatisfiable"
    assert handle.group(timeout=0) == 1500, "the group is done; the one bill is all it has"
    bob_is_broken()
    retry(only(shop.works.bill_customer, status="dead").id)
    assert statuses()["dependency"] == "blocked"
    drain()
    assert invoices() == BILLED
    assert [mail.body for mail in mailoutbox] == ["2 invoices, 5500 cents in all."]
    assert handle.group(timeout=0) == 5500


@pytest.mark.django_db(transaction=True)
def test_a_real_worker_sums_up_once_all_are_billed(shop, place, invoices, mailoutbox):
    for number in range(25):
        place(f"{number}@example.com", number)
    with running_worker(concurrency=4):
        handle = enqueue(shop.works.bill_month(month="2026-03"))
        assert handle.group(timeout=40) == sum(range(25))
    assert len(invoices()) == 25
    assert [mail.body for mail in mailoutbox] == ["25 invoices, 300 cents in all."]
