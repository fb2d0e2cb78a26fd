"""Taking back works whose lease has lapsed: a few at a time, and none from a worker that still runs it."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from django.db import OperationalError

from django_ayework import enqueue, enqueue_many
from django_ayework.flow import maintenance
from django_ayework.flow.maintenance import reclaim
from django_ayework.models import Attempt, Work
from django_ayework.store.database import in_transaction
from django_ayework.testing import now, running_worker
from django_ayework.testing.factories import WorkFactory
from django_ayework.worker import claimer
from django_ayework.worker import maintenance as maintenance_module
from tests.processes import eventually
from tests.races.rivals import claim_all
from tests.worker.works import hold, quick

pytestmark = pytest.mark.usefixtures("quick_polls")


def test_what_is_reclaimed_is_logged_once_nothing_is_locked(monkeypatch):
    """A log may stand still: a pipe that nobody reads, a disk that is full."""
    open_transactions = []
    monkeypatch.setattr(
        maintenance.logger, "warning", lambda *args: open_transactions.append(in_transaction())
    )
    enqueue_many([quick(number=number) for number in range(3)])
    claim_all(lease=-1)
    assert reclaim() == 3
    assert open_transactions == [False] * 3


def test_a_worker_does_not_reclaim_what_it_runs_itself(stage):
    """Its own lease lapsed, perhaps because the host slept; it is still the one at work."""
    handle = enqueue(hold())
    with running_worker(concurrency=2) as worker:
        eventually(lambda: stage.started)
        Work.objects.update(leased_until=now() - timedelta(seconds=1))
        looked = worker._claimer._polled_at
        eventually(lambda: worker._claimer._polled_at > looked + 0.2)
        stage.go.set()
        assert handle.result(timeout=10) == 0
    assert Work.objects.get(id=handle.id).delivery == 1


def lost(seconds: float, **fields: object) -> str:
    """A work whose lease lapsed this long ago."""
    lapsed = now() - timedelta(seconds=seconds)
    work = WorkFactory(status="running", worker="gone", attempt=1, delivery=1, leased_until=lapsed, **fields)
    return str(work.id)


def pending() -> list[str]:
    return list(Work.objects.filter(status="pending").values_list("id", flat=True))


def test_works_are_taken_back_a_few_at_a_time_the_longest_lost_first(monkeypatch):
    monkeypatch.setattr(maintenance, "BATCH", 1)
    ids = [lost(seconds) for seconds in (20, 60, 40)]
    taken = []
    for _ in ids:
        assert reclaim() == 1
        taken += [id for id in pending() if id not in taken]
    assert taken == [ids[1], ids[2], ids[0]]


def test_works_of_its_own_keep_a_worker_from_none_of_the_others(monkeypatch):
    """Its host slept, so its own leases have lapsed for longer than anybody's."""
    monkeypatch.setattr(maintenance, "BATCH", 2)
    own = [lost(600) for _ in range(5)]
    others = [lost(5) for _ in range(2)]
    assert reclaim(own) == 2
    assert sorted(pending()) == sorted(others)


def test_works_of_unknown_types_are_left_to_workers_that_know_them(time_travel):
    known, unknown = lost(5), lost(600, type="other.app")
    assert reclaim() == 1
    assert pending() == [known]
    assert reclaim() == 0
    time_travel(3600)
    assert reclaim() == 1, "nobody knows it; it may not run for ever"
    work = Work.objects.get(id=unknown)
    assert (work.status, work.attempt) == ("pending", 1)
    assert list(Attempt.objects.filter(work_id=unknown).values_list("outcome", flat=True)) == ["lost"]


@pytest.mark.parametrize(
    ("options", "others"),
    [
        ({"queues": ["mail"]}, {"queue": "default"}),
        ({"types": ["worker.quick"]}, {"type": "shop.add"}),
        ({"exclude_types": ["shop.add"]}, {"type": "shop.add"}),
    ],
)
def test_a_worker_takes_back_only_works_that_it_serves(options, others):
    """Not even one of an unknown type that lapsed long ago, in a queue that it does not serve."""
    served = {"queue": "mail", "type": "worker.quick", "input": '{"number":1}'}
    mine = lost(5, **served)
    left = [lost(600, **served | others)]
    if "queues" in options:
        left.append(lost(7200, queue="default", type="other.app"))
    with running_worker(**options):
        eventually(lambda: Attempt.objects.filter(work_id=mine, outcome="lost").exists())
    assert set(Work.objects.filter(status="running").values_list("id", flat=True)) == set(left)


def test_a_lapsed_work_that_no_worker_serves_calls_no_worker_to_maintenance(monkeypatch):
    """Otherwise each worker would try to take it back at each of its looks."""
    tried: list[object] = []
    monkeypatch.setattr(maintenance_module, "reclaim", lambda *args: tried.append(args))
    lost(600, queue="fax")
    with running_worker(queues=["mail"]) as worker:
        looked = worker._claimer._polled_at
        eventually(lambda: worker._claimer._polled_at > looked + 0.2)
    assert tried == []


def test_after_a_time_without_the_database_leases_are_left_to_their_holders_for_a_moment(
    settings, monkeypatch
):
    """It was away for all of them, and each is about to renew its own."""
    settings.AYEWORK = {"LEASE": 0.5}
    lapsed = WorkFactory(status="running", worker="w", leased_until=now() - timedelta(seconds=1))
    monkeypatch.setattr(maintenance_module, "LONGEST_PATIENCE", 0.3)
    reclaimed: list[float] = []
    reclaim = maintenance_module.reclaim
    monkeypatch.setattr(
        maintenance_module, "reclaim", lambda *args: (reclaimed.append(time.monotonic()), reclaim(*args))
    )

    def fail(*args) -> None:
        raise OperationalError("gone")

    with running_worker() as worker:
        with monkeypatch.context() as away:
            away.setattr(claimer, "look", fail)
            eventually(lambda: worker._claimer._was_cut_off)
            reclaimed.clear()
        eventually(lambda: not worker._claimer._was_cut_off)
        back_at = time.monotonic()
        eventually(lambda: Attempt.objects.filter(work_id=lapsed.id, outcome="lost").exists())
    assert min(reclaimed) > back_at
