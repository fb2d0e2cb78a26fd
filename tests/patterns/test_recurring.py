"""The page's recurring job: one series, whatever happens to its runs."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from django_ayework import cancel, retry
from django_ayework.models import Work
from django_ayework.testing import drain, running_worker, time_travel
from tests.patterns.kit import failing, run_for
from tests.processes import eventually

SECTION = "Recurring"
LIVE = ("scheduled", "pending", "running")


def runs(*statuses: str) -> list[Work]:
    """Return the runs in these statuses, in the order in which they were queued."""
    return list(Work.objects.filter(status__in=statuses).order_by("queued_at", "id"))


@pytest.mark.django_db
def test_each_run_does_its_job_and_queues_the_next(shop):
    stale, fresh = shop.order(), shop.order()
    shop.models.Order.objects.filter(pk=stale.pk).update(created=timezone.now() - timedelta(days=2))
    shop.use()
    drain()
    assert (shop.state_of(stale), shop.state_of(fresh)) == ("cancelled", "new")
    run_for(3 * 3600, step=3600)
    assert (len(runs("success")), len(runs(*LIVE))) == (4, 1)


@pytest.mark.django_db
def test_starting_it_again_makes_no_second_series(shop):
    shop.use()
    shop.use()
    drain()
    shop.use()
    run_for(3600, step=3600)
    assert (len(runs("success")), len(runs(*LIVE))) == (2, 1)


@pytest.fixture
def stands_still(shop, monkeypatch):
    """A run of the series has died, and its cause is mended."""
    real = shop.works.Order
    monkeypatch.setattr(shop.works, "Order", None)
    shop.use()
    run_for(7200, raises=False)
    monkeypatch.setattr(shop.works, "Order", real)
    [dead] = runs("dead")
    assert runs(*LIVE) == [], "a run that fails queues no other"
    return dead


@pytest.mark.django_db
@pytest.mark.parametrize("repair", ["retry", "start", "retry, start", "start, retry", "start, run, retry"])
def test_a_series_that_stands_still_goes_on_as_one(shop, stands_still, repair):
    acts = {"retry": lambda: retry(stands_still.id), "start": shop.works.start, "run": drain}
    for name in repair.split(", "):
        acts[name]()
    drain()
    assert len(runs(*LIVE)) == 1
    before = len(runs("success"))
    time_travel(3600)
    assert drain().succeeded == 1
    assert (len(runs("success")), len(runs(*LIVE))) == (before + 1, 1)


@pytest.mark.django_db
def test_a_failed_attempt_leaves_one_series(shop, monkeypatch):
    monkeypatch.setattr(shop.works, "timedelta", failing(timedelta, ValueError("not now"), times=2))
    shop.use()
    run_for(300, raises=False)
    assert (len(runs("success")), len(runs(*LIVE))) == (1, 1)


@pytest.mark.django_db
def test_cancelling_the_next_run_ends_the_series(shop):
    shop.use()
    drain()
    [following] = runs(*LIVE)
    cancel(following.id)
    run_for(7200, step=3600)
    assert runs(*LIVE) == []


@pytest.mark.django_db(transaction=True)
def test_runs_that_meet_in_a_real_worker_go_on_as_one_series(shop, monkeypatch):
    """A dead run is retried at the moment at which the run of a new series is due: both queue the next."""
    real = shop.works.Order
    monkeypatch.setattr(shop.works, "Order", None)
    shop.works.start()
    run_for(600, raises=False)
    monkeypatch.setattr(shop.works, "Order", real)
    for number in range(1, 9):
        [dead] = runs("dead") or runs("cancelled")
        shop.works.start()
        retry(dead.id)
        with running_worker(concurrency=2):
            eventually(lambda: not runs("pending", "running"))
        assert len(runs("success")) == 2 * number
        [following] = runs(*LIVE)
        cancel(following.id)
