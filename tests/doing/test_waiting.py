"""Works that wait in a doer, and doers that break: no work is lost."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from django_ayework import Retry, batch_work, cancel, doers, enqueue, enqueue_many, pause, resume
from django_ayework.flow.notify import revoked_works
from django_ayework.models import Work
from django_ayework.testing import running_worker
from django_ayework.worker import dispatch, maintenance
from django_ayework.worker.worker import Worker
from tests.doing.kit import pending, typed
from tests.doing.works import hold, note, note_all, plain
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


@pytest.mark.parametrize("is_local", [True, False], ids=["here", "by another process"])
def test_a_work_cancelled_while_it_waits_in_a_doer_does_not_run(stage, monkeypatch, is_local):
    monkeypatch.setattr(dispatch, "DOERS_TRUSTED_FOR", 0.0)
    own = typed(hold, doers.age(1, buffer=1))
    first, second = enqueue_many([own(label="first"), own(label="second")])
    with Worker() as worker:
        eventually(lambda: stage.inside["hold"] == 1 and not pending())
        if not is_local:
            revoked_works.unsubscribe(worker._in_flight.abort)
        cancel(second.id)
        stage.go.set()
        assert first.result(timeout=20) == "first"
        assert enqueue(own(label="third")).result(timeout=20) == "third"
    assert (stage.began, second.state().status) == (["first", "third"], "cancelled")


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


class Broken:
    """A doer of somebody else's that breaks once at each place."""

    def __init__(self) -> None:
        self.breaks = ["submit", "available"]
        self.inner = doers.unlimited()

    def broken(self, place: str) -> None:
        if self.breaks and self.breaks[-1] == place:
            self.breaks.pop()
            raise OSError(f"{place} broke")

    def available(self) -> int:
        self.broken("available")
        return self.inner.available()

    def submit(self, *arguments: Any) -> None:
        self.broken("submit")
        self.inner.submit(*arguments)

    def drained(self) -> None:
        self.inner.drained()


class Unsure(Broken):
    """One that answers no number."""

    def available(self) -> Any:
        return None


def test_a_doer_that_answers_no_number_delays_no_other_type(stage, caplog):
    enqueue(typed(note, Unsure())(label="x"))
    with caplog.at_level(logging.ERROR, "django_ayework"), Worker():
        for _ in range(3):
            enqueue(plain(label="y")).result(timeout=20)
    assert "could not say how many works are welcome" in caplog.text
    assert "the claiming loop failed" not in caplog.text


def test_a_doer_that_breaks_is_reported_and_loses_no_work(stage, caplog, monkeypatch):
    monkeypatch.setattr(maintenance, "STALE_AFTER", 0.05)
    handles = [enqueue(typed(note, Broken())(label="x"))]
    several = batch_work(name="doing.several", doer=Broken(), size=3, max_wait=0.01)(note_all)
    handles += enqueue_many([several("x") for _ in range(3)])
    with caplog.at_level(logging.ERROR, "django_ayework"), Worker() as worker:
        assert [handle.result(timeout=20) for handle in handles] == ["x"] * 4
    assert "could not say how many works are welcome" in caplog.text
    assert "refused a batch of 3 doing.several" in caplog.text
    assert worker._in_flight.active == 0
    assert set(Work.objects.values_list("attempt", flat=True)) == {1}


def test_an_error_in_the_handler_is_the_works_not_the_doers(stage, caplog):
    def fail() -> None:
        raise RuntimeError("no")

    own = typed(fail, doers.balanced(1), retry=Retry(attempts=1))
    handle = enqueue(own())
    with running_worker():
        eventually(lambda: handle.state().status == "dead")
    assert "a task of a doer raised" not in caplog.text
