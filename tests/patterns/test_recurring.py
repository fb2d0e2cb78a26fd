"""The page's recurring job: a schedule that queues each run."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.utils import timezone

from django_ayework import retry
from django_ayework.models import Work
from django_ayework.testing import drain, tick, time_travel
from tests.patterns.kit import failing, run_for

pytestmark = pytest.mark.django_db
SECTION = "Recurring"


@pytest.fixture(autouse=True)
def undeclared(shop) -> Iterator[None]:
    """The schedule is gone after the test."""
    yield
    shop.works.hourly.cancel()


def an_hour_later() -> int:
    """Let the next occurrence come; return how many runs it has queued."""
    time_travel(3600)
    return tick()


def test_each_run_cancels_what_is_stale(shop):
    stale, fresh = shop.order(), shop.order()
    shop.models.Order.objects.filter(pk=stale.pk).update(created=timezone.now() - timedelta(days=2))
    assert shop.use()["report"].succeeded == 1
    assert (shop.state_of(stale), shop.state_of(fresh)) == ("cancelled", "new")


def test_an_occurrence_is_skipped_while_the_run_before_has_not_ended(shop):
    shop.use()
    assert [an_hour_later() + tick() for _ in range(3)] == [1, 0, 0]
    assert drain().succeeded == 1
    assert an_hour_later() == 1
    drain()
    time_travel(5 * 3600)  # missed occurrences are one run
    assert tick() == 1
    assert drain().succeeded == 1


def test_a_run_that_is_tried_again_skips_the_occurrences_meanwhile(shop, monkeypatch):
    tick()
    monkeypatch.setattr(shop.works, "timedelta", failing(timedelta, ValueError("not now"), times=1))
    an_hour_later()
    assert drain(raises=False).retried == 1
    assert an_hour_later() == 0
    run_for(60)
    assert Work.objects.filter(status="success").count() == 1
    assert an_hour_later() == 1


def test_a_dead_run_delays_no_other_and_can_be_retried(shop, monkeypatch):
    real = shop.works.Order
    tick()
    monkeypatch.setattr(shop.works, "Order", None)
    an_hour_later()
    run_for(600, raises=False)
    monkeypatch.setattr(shop.works, "Order", real)
    dead = Work.objects.get(status="dead")
    assert an_hour_later() == 1
    retry(dead.id)
    assert drain().succeeded == 2
