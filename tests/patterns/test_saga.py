"""The page's saga: an order is placed in three systems, or in none."""

from __future__ import annotations

import pytest

from django_ayework import cancel, enqueue, enqueue_many, get_handle, retry
from django_ayework.flow.maintenance import reclaim
from django_ayework.models import Work
from django_ayework.testing import drain, running_worker, time_travel
from tests.patterns.kit import answer_lost, failing, only, run_for
from tests.races.rivals import claim_all

pytestmark = pytest.mark.django_db
SECTION = "Saga"
DOWN = ConnectionError("nobody answers")
A_DAY = 24 * 3600


@pytest.fixture
def order(shop):
    return shop.order(cents=1990)


@pytest.fixture
def key(order):
    """The key of the order for the bank and the carrier."""
    return f"order-{order.pk}"


def left(shop, order) -> tuple[str, int, int, str]:
    """Return what an order has come to: its state, the stock, the money taken, the parcel booked."""
    key = f"order-{order.pk}"
    order.article.refresh_from_db()
    taken, parcel = shop.services.charges.get(key, 0), shop.services.parcels.get(key, "")
    return shop.state_of(order), order.article.stock, taken, parcel


PLACED = ("placed", 4, 1990)
CANCELLED = ("cancelled", 5, 0, "")


def test_an_order_is_placed_by_one_saga(shop, order, key):
    handle = shop.use()["handle"]
    again = enqueue_many([shop.works.place_order(order_id=order.pk) for _ in range(2)])
    drain()
    assert left(shop, order) == (*PLACED, f"label-{key}")
    ends = sorted(each.chain(timeout=0) for each in [handle, *again])
    assert ends == ["placed", "placed before", "placed before"]


@pytest.mark.parametrize("service", ["charge", "book_parcel"])
def test_a_refusal_undoes_what_came_before(shop, order, monkeypatch, service):
    monkeypatch.setattr(shop.services, service, failing(lambda: None, shop.services.Refused("no")))
    handle = shop.use()["handle"]
    drain()
    assert left(shop, order) == CANCELLED
    assert handle.chain(timeout=0) == "cancelled"
    ran = set(Work.objects.values_list("type", flat=True))
    assert ("shop.refund_card" in ran) == (service == "book_parcel")


def test_without_stock_nothing_begins(shop):
    order = shop.order(article=shop.models.Article.objects.create(stock=0))
    handle = shop.use()["handle"]
    drain()
    assert left(shop, order) == ("sold out", 0, 0, "")
    assert handle.chain(timeout=0) == "sold out"


@pytest.mark.parametrize("service", ["charge", "book_parcel"])
@pytest.mark.parametrize("times", [1, 4], ids=["once", "always"])
def test_a_lost_answer_neither_repeats_nor_keeps_anything(shop, order, key, monkeypatch, service, times):
    monkeypatch.setattr(shop.services, service, answer_lost(getattr(shop.services, service), times))
    shop.use()
    run_for(600, raises=False)
    assert left(shop, order) == ((*PLACED, f"label-{key}") if times == 1 else CANCELLED)


@pytest.mark.parametrize("service", ["charge", "book_parcel"])
def test_trouble_that_does_not_end_undoes_the_step_itself_as_well(shop, order, key, monkeypatch, service):
    real = getattr(shop.services, service)
    monkeypatch.setattr(shop.services, service, failing(real, DOWN))
    handle = shop.use()["handle"]
    run_for(600, raises=False)
    assert left(shop, order) == CANCELLED
    assert handle.chain(timeout=0) == "cancelled"
    real(*([key, 1990] if service == "charge" else [key]))
    assert left(shop, order) == CANCELLED, "a worker that was cut off comes too late"


@pytest.mark.parametrize(("times", "placed"), [(1, True), (4, False)], ids=["once", "in every attempt"])
def test_a_worker_lost_after_the_charge_charges_once_or_gives_up(shop, order, key, times, placed):
    shop.use()
    drain(limit=1)
    for _ in range(times):
        [row] = claim_all(lease=30).values()
        assert row.type == "shop.charge_card"
        shop.services.charge(key, 1990)
        time_travel(31)
        assert reclaim() == 1
    drain()
    assert left(shop, order) == ((*PLACED, f"label-{key}") if placed else CANCELLED)


def test_an_undoing_step_that_died_is_retried_and_the_chain_goes_on(shop, order, monkeypatch):
    refund = shop.services.refund
    monkeypatch.setattr(shop.services, "book_parcel", failing(lambda: None, shop.services.Refused("no")))
    monkeypatch.setattr(shop.services, "refund", failing(refund, DOWN))
    handle = shop.use()["handle"]
    run_for(A_DAY, step=3600, raises=False)
    assert only(shop.works.refund_card).status == "scheduled", "it tries for a day at least"
    run_for(2 * A_DAY, step=3600, raises=False)
    dead = only(shop.works.refund_card)
    assert (dead.status, left(shop, order)) == ("dead", ("placing", 4, 1990, ""))
    monkeypatch.setattr(shop.services, "refund", refund)
    retry(dead.id)
    drain()
    assert left(shop, order) == CANCELLED
    assert handle.chain(timeout=0) == "cancelled"


def test_a_cancelled_step_stops_the_saga_until_it_is_retried(shop, order, key):
    shop.use()
    drain(limit=2)
    step = only(shop.works.book_parcel)
    cancel(step.id)
    run_for(600)
    assert left(shop, order) == ("placing", 4, 1990, "")
    retry(step.id)
    drain()
    assert left(shop, order) == (*PLACED, f"label-{key}")


@pytest.mark.django_db(transaction=True)
def test_a_real_worker_leaves_nothing_half_done(shop, monkeypatch):
    """Twelve orders of eight articles; some cards and some addresses are refused."""
    article = shop.models.Article.objects.create(stock=8)
    orders = [shop.order(article=article, cents=number) for number in range(1, 13)]
    refuse(shop, monkeypatch, "charge", {f"order-{order.pk}" for order in orders[::3]})
    refuse(shop, monkeypatch, "book_parcel", {f"order-{order.pk}" for order in orders[1::4]})
    with running_worker(concurrency=4):
        handles = [enqueue(shop.works.place_order(order_id=order.pk)) for order in orders]
        ends = [get_handle(handle.id).chain(timeout=40) for handle in handles]
    states = [shop.state_of(order) for order in orders]
    placed = {f"order-{order.pk}" for order, state in zip(orders, states, strict=True) if state == "placed"}
    article.refresh_from_db()
    assert states == ends
    assert article.stock == 8 - len(placed)
    assert {key for key, cents in shop.services.charges.items() if cents} == placed
    assert {key for key, label in shop.services.parcels.items() if label} == placed


def refuse(shop, monkeypatch, service: str, keys: set[str]) -> None:
    """Let a service refuse these keys."""
    real = getattr(shop.services, service)

    def call(key, *values):
        if key in keys:
            raise shop.services.Refused("no")
        real(key, *values)

    monkeypatch.setattr(shop.services, service, call)
