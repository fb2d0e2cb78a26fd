"""Works that wait in a doer: they stay here, unless they are cancelled, paused or given back."""

from __future__ import annotations

import threading

import pytest

from django_ayework import cancel, doers, enqueue, enqueue_many, pause, resume
from django_ayework.flow.notify import revoked_works
from django_ayework.models import Work
from django_ayework.testing import running_worker
from django_ayework.worker import dispatch, maintenance
from django_ayework.worker.worker import Worker
from tests.doing.kit import pending, typed
from tests.doing.works import hold, plain
from tests.processes import eventually

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("quick_polls")]


def test_a_work_that_waits_in_a_doer_stays_here(stage, monkeypatch):
    """Those that wait for a slot are given back after a moment; a limited doer would only get them again."""
    monkeypatch.setattr(maintenance, "STALE_AFTER", 0.0)
    own = typed(hold, doers.balanced(1, buffer=1))
    handles = enqueue_many([own(label="x") for _ in range(2)])
    with Worker() as worker:
        eventually(lambda: stage.inside["hold"] == 1 and not pending())
        worker._maintenance.release_waiting()
        assert pending() == 0
        stage.go.set()
        assert [handle.result(timeout=20) for handle in handles] == ["x", "x"]
    assert set(Work.objects.values_list("delivery", flat=True)) == {1}


def test_a_work_cancelled_while_it_waits_in_a_doer_does_not_run(stage, monkeypatch):
    monkeypatch.setattr(dispatch, "DOERS_TRUSTED_FOR", 0.0)
    own = typed(hold, doers.age(1, buffer=1))
    first, second = enqueue_many([own(label="first"), own(label="second")])
    with running_worker():
        eventually(lambda: stage.inside["hold"] == 1 and not pending())
        cancel(second.id)
        stage.go.set()
        assert first.result(timeout=20) == "first"
        assert enqueue(own(label="third")).result(timeout=20) == "third"
    assert (stage.began, second.state().status) == (["first", "third"], "cancelled")


def test_a_work_cancelled_elsewhere_while_it_waits_in_a_doer_does_not_run(stage, monkeypatch):
    monkeypatch.setattr(dispatch, "DOERS_TRUSTED_FOR", 0.0)
    own = typed(hold, doers.age(1, buffer=1))
    first, second = enqueue_many([own(label="first"), own(label="second")])
    with Worker() as worker:
        eventually(lambda: stage.inside["hold"] == 1 and not pending())
        revoked_works.unsubscribe(worker._in_flight.abort)  # as if the one who cancels were another process
        cancel(second.id)
        stage.go.set()
        assert first.result(timeout=20) == "first"
        assert enqueue(own(label="third")).result(timeout=20) == "third"
    assert stage.began == ["first", "third"]


def test_what_waits_goes_back_when_its_type_is_paused(stage):
    own = typed(hold, doers.balanced(1, buffer=2))
    enqueue_many([own(label="own") for _ in range(3)])
    with running_worker():
        eventually(lambda: stage.inside["hold"] == 1 and not pending())
        pause(type=own.name)
        eventually(lambda: pending() == 2)
        stage.go.set()
        assert enqueue(plain(label="other")).result(timeout=20) == "other"
        eventually(lambda: Work.objects.filter(type=own.name, status="success").count() == 1)
        assert (pending(), stage.began.count("own")) == (2, 1)
        resume(type=own.name)
        eventually(lambda: Work.objects.filter(type=own.name, status="success", attempt=1).count() == 3)


def test_a_worker_that_stops_gives_back_what_waits_in_its_doers(stage):
    own = typed(hold, doers.balanced(1, buffer=2))
    enqueue_many([own() for _ in range(3)])
    worker = Worker()
    with worker:
        eventually(lambda: stage.inside["hold"] == 1 and not pending())
        threading.Timer(0.2, stage.go.set).start()
    assert (worker._in_flight.in_doers, worker._in_flight.active) == (0, 0)
    assert sorted(Work.objects.values_list("status", "attempt")) == [
        ("pending", 0),
        ("pending", 0),
        ("success", 1),
    ]
