"""The page's map-reduce: takings, added up in parts."""

from __future__ import annotations

import pytest

from django_ayework import enqueue, retry
from django_ayework.testing import drain, running_worker
from tests.patterns.kit import failing, only, run_for

pytestmark = pytest.mark.django_db
SECTION = "Map-reduce"


def place(shop, *cents: int) -> None:
    article = shop.models.Article.objects.create(stock=0)
    for each in cents:
        shop.order(article=article, cents=each, state="placed")


@pytest.mark.parametrize(
    ("cents", "works", "sums"),
    [
        ([500, 1000, 1500], 4, {"orders": 3, "cents": 3000, "average": 1000.0}),
        ([], 2, {"orders": 0, "cents": 0, "average": 0.0}),
    ],
    ids=["three orders", "no orders"],
)
def test_the_parts_are_added_up_and_the_average_comes_last(shop, cents, works, sums):
    place(shop, *cents)
    shop.order(cents=99, state="new")
    handle = shop.use()["handle"]
    assert drain().succeeded == works
    assert handle.group(timeout=0) == sums


def test_a_part_whose_attempts_fail_is_added_once(shop, monkeypatch):
    place(shop, 1, 2, 3, 4, 5)
    monkeypatch.setattr(shop.works, "added", failing(shop.works.added, ValueError("not now"), times=3))
    handle = shop.use()["handle"]
    run_for(120, raises=False)
    assert handle.group(timeout=0)["cents"] == 15


def test_a_dead_part_is_missing_until_it_is_retried(shop, monkeypatch):
    place(shop, 1, 2, 3, 4, 5)
    added = shop.works.added

    def unlucky(total, orders, cents):
        if cents == 7:
            raise ValueError("not this part")
        return added(total, orders, cents)

    monkeypatch.setattr(shop.works, "added", unlucky)
    handle = shop.use()["handle"]
    run_for(120, raises=False)
    assert handle.group(timeout=0) == {"orders": 3, "cents": 8}

    monkeypatch.setattr(shop.works, "added", added)
    retry(only(shop.works.add_up, status="dead").id)
    drain()
    assert handle.group(timeout=0) == {"orders": 5, "cents": 15, "average": 3.0}


@pytest.mark.django_db(transaction=True)
def test_parts_that_end_at_once_in_a_real_worker_are_all_counted(shop):
    place(shop, *range(60))
    with running_worker(concurrency=6):
        handle = enqueue(shop.works.takings(size=2))
        assert handle.group(timeout=40) == {"orders": 60, "cents": 1770, "average": 29.5}
