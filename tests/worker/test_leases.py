"""Leases: kept while the worker lives, lost for good once another has the work."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import OperationalError, transaction

from django_ayework import enqueue, enqueue_many
from django_ayework.define.context import AbortReason
from django_ayework.flow.maintenance import reclaim
from django_ayework.flow.settle import Settlement, Success, settle
from django_ayework.models import Attempt, Group, Work
from django_ayework.testing import now, running_worker
from django_ayework.worker import in_flight as leases_thread
from django_ayework.worker.worker import Worker
from tests.processes import eventually
from tests.races.rivals import claim_all
from tests.worker.works import (
    hold,
    hold_async,
    hold_atomic,
    long_lease,
    quick,
    short_lease,
    until_aborted,
)

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
    from django_ayework.worker import in_flight as leases_thread

    renewals = []
    monkeypatch.setattr(leases_thread.locks, "renew", lambda *args: renewals.append(args))
    handle = enqueue(hold())
    stage.go.set()
    with running_worker():
        handle.result(timeout=10)
    assert not renewals


def test_the_late_outcome_of_a_work_that_was_reclaimed_is_refused(stage, caplog):
    handle = enqueue(until_aborted())
    with running_worker(concurrency=1) as worker:
        eventually(lambda: stage.started)
        with transaction.atomic():  # or this very worker might have it again by then
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
    for delivery in worker._in_flight.all():
        delivery.renewed_at = float("-inf")


# A lease that lapsed while nobody else took the work


def lapse(worker: Worker, in_database: bool = True) -> None:
    """Let every lease that the worker holds be over, as after a long pause of its host."""
    if in_database:
        Work.objects.filter(status="running").update(leased_until=now() - timedelta(seconds=1))
    for delivery in worker._in_flight.all():
        delivery.lapses_at = float("-inf")


@pytest.mark.parametrize("kind", [hold, hold_async, hold_atomic], ids=lambda kind: kind.name)
def test_a_late_outcome_counts_as_long_as_nobody_took_the_work(stage, caplog, kind):
    handle = enqueue(kind())
    with running_worker() as worker:
        eventually(lambda: stage.started)
        lapse(worker, in_database=kind is not hold_atomic)  # which has locked all of SQLite
        stage.go.set()
        eventually(lambda: handle.state().status == "success")
    assert Work.objects.get().delivery == 1
    assert caplog.text.count(f"The lease of work {handle.id} had lapsed when it was settled") == 1


def test_a_lease_that_lapsed_is_renewed_as_long_as_nobody_took_the_work(stage, caplog):
    handle = enqueue(hold())
    with running_worker() as worker:
        eventually(lambda: stage.started)
        lapse(worker)
        hasten_renewal(worker)
        eventually(lambda: leased_until(handle) > now())
        stage.go.set()
        handle.result(timeout=10)
    assert f"The lease of work {handle.id} had lapsed when it was renewed" in caplog.text
    assert "when it was settled" not in caplog.text


def test_an_outcome_in_time_is_no_reason_to_warn(stage, caplog):
    handles = enqueue_many([quick(number=number) for number in range(5)])
    with running_worker():
        for handle in handles:
            handle.result(timeout=10)
    assert "lapsed" not in caplog.text


def cannot_renew(*args: object) -> None:
    raise OperationalError("server closed the connection unexpectedly")


def test_an_attempt_whose_lease_lapses_because_it_cannot_be_renewed_is_told(stage, monkeypatch):
    """Somebody else may have the work by now. If nobody does, its outcome counts."""
    handle = enqueue(until_aborted())
    with running_worker() as worker:
        eventually(lambda: stage.started)
        monkeypatch.setattr(leases_thread.locks, "renew", cannot_renew)
        lapse(worker)
        hasten_renewal(worker)
        eventually(lambda: stage.seen)
        assert handle.result(timeout=10) == "attempt 1"
    assert stage.seen == ["error"]


def test_while_the_lease_lasts_a_renewal_that_fails_is_tried_again(stage, monkeypatch):
    failed: list[object] = []
    monkeypatch.setattr(leases_thread.locks, "renew", lambda *args: failed.append(args) or cannot_renew())
    handle = enqueue(until_aborted())
    with running_worker() as worker:
        eventually(lambda: stage.started)
        hasten_renewal(worker)
        eventually(lambda: len(failed) > 2)
        [delivery] = worker._in_flight.all()
        assert not delivery.signal.aborted
        delivery.abort(AbortReason.TIMEOUT)
        handle.result(timeout=10)
    assert stage.seen == ["timeout"]
