"""The page's pipeline: bank statement, matched payments, booked payments."""

from __future__ import annotations

import pytest

from django_ayework import NotRetryable, enqueue, retry
from django_ayework.models import Work
from django_ayework.testing import drain
from tests.patterns.kit import only

pytestmark = pytest.mark.django_db
SECTION = "Pipeline"


@pytest.fixture
def orders(shop):
    """The orders 1 and 7."""
    return {number: shop.order(id=number, cents=5000) for number in (1, 7)}


def paid(orders) -> dict[int, int]:
    for order in orders.values():
        order.refresh_from_db()
    return {number: order.paid for number, order in orders.items()}


def line(reference: str, text: str, cents: int) -> dict:
    return {"reference": reference, "text": text, "cents": cents}


def test_a_line_that_names_its_order_is_booked_and_another_waits_for_a_retry(shop, orders):
    handle = shop.use()["handle"]
    drain()
    assert paid(orders) == {1: 1990, 7: 0}
    assert handle.result(timeout=0) == 2
    dead = only(shop.works.match_payment, status="dead")
    assert (dead.reason, dead.unit) == ("aborted", "2026-03-02/2")
    retry(dead.id, {"text": "order 7", "cents": 4900})
    drain()
    assert paid(orders) == {1: 1990, 7: 4900}
    assert handle.group(timeout=0) is not None


def test_a_statement_that_is_imported_again_books_nothing_twice(shop, orders):
    for _ in range(2):
        shop.use()
    drain()
    dead = only(shop.works.match_payment, status="dead")
    shop.use()
    drain(limit=1)
    with pytest.raises(NotRetryable, match="2026-03-02/2"):
        retry(dead.id)
    drain()
    assert paid(orders) == {1: 1990, 7: 0}
    assert shop.models.Payment.objects.count() == 1


def test_two_parts_of_one_order_are_both_booked(shop, orders):
    enqueue(shop.works.read_statement(lines=[line("a", "order 1", 1000), line("b", "order 1", 4000)]))
    drain()
    assert paid(orders)[1] == 5000


def test_an_ambiguous_statement_is_refused_as_a_whole_and_an_unknown_order_waits(shop, orders):
    lines = [line("a", "order 1", 1000), line("a", "order 7", 4000)]
    handle = enqueue(shop.works.read_statement(lines=lines))
    drain()
    assert (handle.state().status, Work.objects.count()) == ("dead", 1)
    enqueue(shop.works.read_statement(lines=[line("a", "order 999", 1000)]))
    drain()
    assert "'order 999'" in only(shop.works.match_payment, status="dead").error
