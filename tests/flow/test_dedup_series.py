"""A work that queues its own next run under a key: one series, whatever happens to its runs."""

from __future__ import annotations

import pytest

from django_ayework import Context, Dedup, cancel, enqueue, retry, work
from django_ayework.models import Work
from django_ayework.testing import drain, running_worker, time_travel
from tests.processes import eventually

LIVE = ("scheduled", "pending", "running")
failing = {"now": False}


@work(name="t.dedup.series", atomic=True)
def series(ctx: Context) -> None:
    enqueue(series(), dedup=Dedup("series", exclude=[ctx.id]), delay=3600)
    if failing["now"]:
        raise RuntimeError("not now")


def start() -> None:
    """Begin the series, unless it is going."""
    enqueue(series(), dedup=Dedup("series"))


def runs(*statuses: str) -> list[Work]:
    return list(Work.objects.filter(status__in=statuses).order_by("queued_at", "id"))


@pytest.fixture
def stands_still(monkeypatch: pytest.MonkeyPatch) -> Work:
    """A run of the series has died, and its cause is mended."""
    monkeypatch.setitem(failing, "now", True)
    start()
    for _ in range(3):
        drain(raises=False)
        time_travel(60)
    monkeypatch.setitem(failing, "now", False)
    [dead] = runs("dead")
    assert runs(*LIVE) == [], "a run that fails queues no other"
    return dead


@pytest.mark.django_db
def test_starting_it_again_makes_no_second_series() -> None:
    start()
    start()
    drain()
    start()
    time_travel(3600)
    drain()
    assert (len(runs("success")), len(runs(*LIVE))) == (2, 1)


@pytest.mark.django_db
@pytest.mark.parametrize("repair", ["retry", "start", "retry, start", "start, retry", "start, run, retry"])
def test_a_series_that_stands_still_goes_on_as_one(stands_still: Work, repair: str) -> None:
    acts = {"retry": lambda: retry(stands_still.id), "start": start, "run": drain}
    for name in repair.split(", "):
        acts[name]()
    drain()
    assert len(runs(*LIVE)) == 1
    before = len(runs("success"))
    time_travel(3600)
    assert drain().succeeded == 1
    assert (len(runs("success")), len(runs(*LIVE))) == (before + 1, 1)


@pytest.mark.django_db(transaction=True)
def test_runs_that_meet_in_a_real_worker_go_on_as_one_series(stands_still: Work) -> None:
    """A dead run is retried at the moment at which the run of a new series is due: both queue the next."""
    for number in range(1, 9):
        [dead] = runs("dead") or runs("cancelled")
        start()
        retry(dead.id)
        with running_worker(concurrency=2):
            eventually(lambda: not runs("pending", "running"))
        assert len(runs("success")) == 2 * number
        [following] = runs(*LIVE)
        cancel(following.id)
