"""The page's polling: a label that the carrier prints when it likes."""

from __future__ import annotations

import pytest

from django_ayework import retry
from django_ayework.testing import drain, time_travel
from tests.patterns.kit import answer_lost, failing, only, run_for

pytestmark = pytest.mark.django_db
SECTION = "Polling"
A_DAY = 24 * 3600


@pytest.fixture
def order(shop):
    return shop.order()


def label_of(shop, order) -> str:
    order.refresh_from_db()
    return order.label


@pytest.fixture
def find_label(shop, monkeypatch):
    """There is no label yet; return a function that replaces the answer."""
    real = shop.services.find_label

    def answer(find=real):
        monkeypatch.setattr(shop.services, "find_label", find)

    answer(lambda key: None)
    return answer


def test_it_asks_until_the_label_is_there(shop, order, find_label):
    handle = shop.use()["handle"]
    run_for(600)
    poll = only(shop.works.fetch_label)
    assert (poll.status, poll.attempt, label_of(shop, order)) == ("scheduled", 0, "")
    find_label()
    run_for(60)
    assert handle.chain(timeout=0) == label_of(shop, order) == f"label-order-{order.pk}"


def test_a_carrier_that_cannot_be_reached_uses_no_attempt(shop, order, monkeypatch):
    unreachable = failing(shop.services.find_label, ConnectionError("nobody answers"), times=10)
    monkeypatch.setattr(shop.services, "find_label", unreachable)
    handle = shop.use()["handle"]
    run_for(12 * 300, step=300)
    assert handle.chain(timeout=0) == label_of(shop, order)


def test_real_failures_add_up_however_many_polls_lie_between(shop, order, find_label):
    answers = iter([None, KeyError, None, None, KeyError, None, None, None, KeyError])

    def fail_at_times(key):
        answer = next(answers)
        if answer is not None:
            raise answer("label")

    find_label(fail_at_times)
    shop.use()
    run_for(3600, raises=False)
    poll = only(shop.works.fetch_label)
    assert (poll.status, poll.reason, len(list(answers))) == ("dead", "exhausted", 0)


def test_an_answer_that_is_lost_books_no_second_parcel(shop, order, monkeypatch):
    book_parcel = answer_lost(shop.services.book_parcel, times=1)
    monkeypatch.setattr(shop.services, "book_parcel", book_parcel)
    shop.use()
    run_for(120, raises=False)
    assert list(shop.services.parcels) == [f"order-{order.pk}"]
    assert label_of(shop, order)


def test_after_a_day_it_is_dead_and_a_retry_asks_for_another_day(shop, order, find_label):
    handle = shop.use()["handle"]
    run_for(A_DAY + 3600, step=3600)
    poll = only(shop.works.fetch_label)
    assert (poll.status, poll.reason) == ("dead", "expired")
    retry(poll.id)
    run_for(A_DAY - 3600, step=3600)
    poll.refresh_from_db()
    assert poll.status == "scheduled"
    find_label()
    time_travel(60)
    drain()
    assert handle.chain(timeout=0) == label_of(shop, order) != ""
