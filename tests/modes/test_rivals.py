"""Somebody else moves the work while its handler runs: nothing of the attempt stays."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import transaction

from django_ayework import cancel, complete, enqueue
from django_ayework.flow.maintenance import reclaim
from django_ayework.models import Attempt, Work
from django_ayework.testing import now, running_worker
from tests.app.works import add
from tests.modes.works import held_atomic, held_between, held_between_async, notes
from tests.processes import eventually
from tests.worker.test_leases import hasten_renewal

pytestmark = pytest.mark.django_db(transaction=True)

ACTS = [(cancel, "cancelled", "cancelled"), (complete, "already_completed", "success")]
#: On SQLite nobody else can write while an atomic handler runs.
servers = pytest.mark.vendors("postgresql", "mysql")
STAGED = [held_between, held_between_async]


@pytest.fixture(autouse=True)
def quick_polls(settings):
    settings.AYEWORK = {"POLL_INTERVAL": 0.05}


def arrive(stage) -> None:
    assert stage.arrived.wait(20)


@servers
@pytest.mark.parametrize(("act", "reason", "status"), ACTS)
def test_an_atomic_work_that_is_ended_by_hand_leaves_nothing(stage, caplog, act, reason, status):
    handle = enqueue(held_atomic())
    with running_worker():
        arrive(stage)
        act(handle.id)
        before = list(Work.objects.values())
        stage.go.set()
    assert notes() == []
    assert list(Work.objects.values()) == before
    assert (before[0]["status"], Attempt.objects.count()) == (status, 0)
    assert f"Work {handle.id} was lost while it ran: {reason}" in caplog.text


@servers
def test_an_atomic_work_that_was_reclaimed_has_its_effects_once(stage):
    handle = enqueue(held_atomic())
    with running_worker(concurrency=2):
        arrive(stage)
        with transaction.atomic():  # or its worker might reclaim it first
            Work.objects.filter(id=handle.id).update(leased_until=now() - timedelta(seconds=1))
            assert reclaim() == 1
        with running_worker():
            handle.group(timeout=20)
        stage.go.set()
    assert notes() == ["handler 2"]
    assert Work.objects.filter(type=add.name).count() == 1
    assert list(Attempt.objects.values_list("number", "outcome")) == [(1, "lost")]


@pytest.mark.parametrize("mode", STAGED, ids=lambda mode: mode.name)
@pytest.mark.parametrize(("act", "reason", "status"), ACTS)
def test_complete_refuses_a_work_that_was_ended_by_hand(stage, mode, act, reason, status):
    handle = enqueue(mode())
    with running_worker():
        arrive(stage)
        act(handle.id)
        before = list(Work.objects.values())
        stage.go.set()
    assert (stage.seen, stage.entered) == ([("Aborted", reason)], 0)
    assert notes() == ["prepare 1"]
    assert list(Work.objects.values()) == before
    assert (before[0]["status"], Attempt.objects.count()) == (status, 0)


@pytest.mark.parametrize("mode", STAGED, ids=lambda mode: mode.name)
def test_complete_refuses_a_work_that_is_gone(stage, mode):
    enqueue(mode())
    with running_worker():
        arrive(stage)
        Work.objects.all().delete()
        stage.go.set()
    assert (stage.seen, stage.entered) == ([("Aborted", "not_found")], 0)
    assert (notes(), Work.objects.count()) == (["prepare 1"], 0)


@pytest.mark.parametrize("mode", STAGED, ids=lambda mode: mode.name)
@pytest.mark.parametrize("told", [True, False], ids=["that knows", "that does not know"])
def test_complete_refuses_a_work_that_another_worker_has(stage, mode, told):
    """Its lease lapsed in the middle, and the second attempt runs when the first one comes back."""
    handle = enqueue(mode())
    with running_worker(concurrency=1) as first:
        arrive(stage)
        lease = now() + timedelta(hours=1)
        Work.objects.update(worker="another", delivery=2, attempt=2, leased_until=lease)
        if told:
            hasten_renewal(first)
            eventually(lambda: first._in_flight.all()[0].signal.aborted)
        stage.go.set()
        eventually(lambda: stage.seen)
    assert (stage.seen, stage.entered) == ([("Aborted", "taken_by_another_worker")], 0)
    assert notes() == ["prepare 1"]
    assert Work.objects.get(id=handle.id).status == "running"


@pytest.mark.parametrize("mode", STAGED, ids=lambda mode: mode.name)
def test_a_lapsed_lease_that_nobody_took_does_no_harm(stage, mode):
    handle = enqueue(mode())
    with running_worker(concurrency=1):
        arrive(stage)
        Work.objects.update(leased_until=now() - timedelta(seconds=1))
        stage.go.set()
        assert handle.result(timeout=20) == "attempt 1"
    assert notes() == ["prepare 1", "complete 1"]


@pytest.mark.parametrize("mode", STAGED, ids=lambda mode: mode.name)
def test_between_the_stages_the_lease_is_renewed(stage, mode):
    enqueue(mode())
    with running_worker(concurrency=1) as worker:
        arrive(stage)
        before = Work.objects.get().leased_until
        hasten_renewal(worker)
        eventually(lambda: Work.objects.get().leased_until > before)
        stage.go.set()
