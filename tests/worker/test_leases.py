"""Leases: kept while the worker lives, lost for good once another has the work."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_ayework import enqueue, enqueue_many
from django_ayework.flow.chores import reclaim
from django_ayework.flow.settle import Settlement, Success, settle
from django_ayework.models import Attempt, Group, Work
from django_ayework.testing import now, running_worker
from django_ayework.worker.worker import Worker
from tests.processes import eventually
from tests.races.rivals import claim_all
from tests.worker.works import hold, long_lease, quick, short_lease, until_aborted

pytestmark = pytest.mark.usefixtures("quick_polls")


def leased_until(handle):
    return Work.objects.get(id=handle.id).leased_until


def test_a_lease_of_ones_own_holds_from_the_start(stage):
    """The claim leases for as long as the settings say; a longer lease is written before that is over."""
    handle = enqueue(long_lease())
    with running_worker():
        eventually(lambda: stage.started and leased_until(handle) > now() + timedelta(seconds=500))
        stage.go.set()
        handle.result(timeout=10)


def test_a_lease_shorter_than_the_settings_is_renewed_in_time(stage):
    handle = enqueue(short_lease())
    leases = set()

    def renewed() -> bool:
        moment = leased_until(handle)
        if moment is not None and moment < now() + timedelta(seconds=4):
            assert moment > now() - timedelta(seconds=1), "it lapsed"
            leases.add(moment)
        return len(leases) > 2

    with running_worker(), running_worker():
        eventually(renewed)
        stage.go.set()
        handle.result(timeout=10)
    assert Work.objects.get(id=handle.id).delivery == 1


def test_a_quick_work_is_never_renewed(stage, monkeypatch):
    from django_ayework.worker import keeper

    renewals = []
    monkeypatch.setattr(keeper.leases, "renew", lambda *args: renewals.append(args))
    handle = enqueue(hold())
    stage.go.set()
    with running_worker():
        handle.result(timeout=10)
    assert not renewals


def test_the_late_outcome_of_a_work_that_was_reclaimed_is_refused(stage, caplog):
    handle = enqueue(until_aborted())
    with running_worker(concurrency=1) as worker:
        eventually(lambda: stage.started)
        Work.objects.update(leased_until=now() - timedelta(seconds=1))
        assert reclaim() == 1
        assert Work.objects.get(id=handle.id).status == "pending"
        hasten_renewal(worker)
        assert handle.result(timeout=30) == "attempt 2"
    assert stage.seen == ["taken_by_another_worker"]
    assert f"The outcome of work {handle.id} came too late" in caplog.text
    assert Work.objects.get(id=handle.id).delivery == 2
    assert list(Attempt.objects.values_list("number", "outcome")) == [(1, "lost")]


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_outcomes_of_one_work_that_are_settled_together_the_lost_one_is_refused(order: int):
    """One worker lost the work, got it again, and both of its attempts ended at once."""
    handles = enqueue_many([quick(number=number) for number in range(3)], together=True)
    stale = claim_all(lease=-1)[handles[0].id]
    assert reclaim() == 3
    fresh = claim_all()[handles[0].id]
    settlements = [Settlement(stale, Success("1")), Settlement(fresh, Success("2"))][::order]
    report = settle(settlements)
    assert (report.moved, report.refused) == ({fresh.id}, [stale.id])
    assert handles[0].result(timeout=0) == 2
    assert Group.objects.get().open == 2


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"status": "success"}, "already_completed"),
        ({"status": "dead", "reason": "aborted"}, "already_completed"),
        ({"status": "cancelled"}, "cancelled"),
        ({"delivery": 2, "worker": "another", "leased_until": None}, "taken_by_another_worker"),
        (None, "not_found"),
    ],
)
def test_an_attempt_whose_work_is_lost_is_told_why(stage, changes, reason):
    enqueue(until_aborted())
    with running_worker(concurrency=1) as worker:
        eventually(lambda: stage.started)
        if changes is None:
            Work.objects.all().delete()
        elif "worker" in changes:
            Work.objects.update(**changes | {"leased_until": now() + timedelta(hours=1)})
        else:
            Work.objects.update(**changes, ended_at=now(), worker=None, leased_until=None)
        before = list(Work.objects.values())
        hasten_renewal(worker)
        eventually(lambda: stage.seen)
    assert stage.seen == [reason]
    assert list(Work.objects.values()) == before, "the late outcome changed something"


def hasten_renewal(worker: Worker) -> None:
    """Make every lease the worker holds due for renewal."""
    for delivery in worker._holdings.all():
        delivery.renewed_at = float("-inf")


def test_a_worker_does_not_reclaim_what_it_runs_itself(stage):
    """Its own lease lapsed, perhaps because the host slept; it is still the one at work."""
    handle = enqueue(hold())
    with running_worker(concurrency=2) as worker:
        eventually(lambda: stage.started)
        Work.objects.update(leased_until=now() - timedelta(seconds=1))
        looked = worker._claimer._looked_at
        eventually(lambda: worker._claimer._looked_at > looked + 0.2)
        stage.go.set()
        assert handle.result(timeout=10) == 0
    assert Work.objects.get(id=handle.id).delivery == 1
