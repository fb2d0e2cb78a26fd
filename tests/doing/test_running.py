"""Doers in a real worker of this process."""

from __future__ import annotations

import threading
from contextlib import nullcontext

import pytest

from django_ayework import batch_work, doers, enqueue, enqueue_many, work
from django_ayework.models import Work
from django_ayework.testing import drain, running_worker
from django_ayework.worker import dispatch
from django_ayework.worker.claimer import Claimer
from django_ayework.worker.worker import Worker
from tests.doing.kit import pending, typed
from tests.doing.works import NEVER_IN_A_TEST, hold, hold_all, hold_async, note, plain
from tests.processes import eventually

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("quick_polls")]


@pytest.mark.parametrize("burst", [False, True])
def test_the_doer_of_a_type_runs_its_works_and_slots_run_the_others(stage, burst):
    own = typed(note, doers.balanced(2))
    handles = enqueue_many([own(label="own") for _ in range(20)] + [plain(label="plain") for _ in range(5)])
    if burst:
        Worker(burst=True, concurrency=1).run()
    with nullcontext() if burst else running_worker(concurrency=1):
        assert [handle.result(timeout=20) for handle in handles] == ["own"] * 20 + ["plain"] * 5
    ran = set(zip(stage.began, [name.rstrip("0123456789") for name in stage.threads], strict=True))
    assert ran == {("own", "ayework-doer"), ("plain", "ayework-slot-")}
    assert set(Work.objects.values_list("attempt", "delivery")) == {(1, 1)}


@pytest.mark.parametrize("handler", [hold, hold_async])
def test_so_many_run_at_a_time_as_the_doer_says(stage, handler):
    own = typed(handler, doers.balanced(3, buffer=1))
    handles = enqueue_many([own(label="x") for _ in range(9)])
    with running_worker(concurrency=1):
        eventually(lambda: stage.inside["hold"] == 3 and pending() == 5)  # and one in the buffer
        stage.go.set()
        assert [handle.result(timeout=20) for handle in handles] == ["x"] * 9
    assert stage.most_inside["hold"] == 3


def test_the_doer_of_the_settings_runs_types_without_one(stage, settings):
    settings.AYEWORK = {"POLL_INTERVAL": 0.05, "DOER": doers.balanced(2)}
    handle = enqueue(plain(label="x"))
    with running_worker():
        assert handle.result(timeout=20) == "x"
    assert set(stage.threads) == {"ayework-doer"}


def test_who_has_the_fewest_running_is_next(stage):
    """One of the two that run first ends, and only then is there a choice."""
    turns = threading.Semaphore(0)

    def one_by_one(label: str) -> None:
        stage.enter("one", label)
        turns.acquire(timeout=NEVER_IN_A_TEST)

    own = typed(one_by_one, doers.balanced(2, buffer=8))
    for label in "aaabc":
        enqueue(own(label=label), fairness=label, priority=int(label == "a"))
    with running_worker():
        eventually(lambda: not pending() and stage.began == ["a", "a"])
        turns.release()
        eventually(lambda: len(stage.began) == 3)
        assert stage.began[2] == "b"
        turns.release(4)
        eventually(lambda: Work.objects.filter(status="success").count() == 5)


def test_busy_slots_hold_up_no_doer(stage):
    waiting = work(name="doing.slow")(hold)
    own = typed(note, doers.balanced(1))
    enqueue_many([waiting() for _ in range(5)])
    with running_worker(concurrency=1):
        eventually(lambda: stage.inside["hold"] == 1)
        assert enqueue(own(label="x")).result(timeout=20) == "x"
        stage.go.set()


def test_a_limited_rate_is_kept(stage):
    own = typed(note, doers.rate_limited(2, 3600))
    enqueue_many([own(label="x") for _ in range(6)])
    with running_worker():
        eventually(lambda: Work.objects.filter(status="success").count() == 2)
        assert enqueue(plain(label="y")).result(timeout=20) == "y"
    assert stage.began.count("x") == 2
    assert (pending(), Work.objects.filter(type=own.name, attempt=1).count()) == (4, 2)


def test_room_that_comes_with_time_is_noticed_at_once(stage, settings):
    settings.AYEWORK = {"POLL_INTERVAL": 60}
    own = typed(hold, doers.rate_limited(1, 0.05))
    enqueue_many([own() for _ in range(3)])
    with running_worker():
        eventually(lambda: stage.inside["hold"] == 3)
        stage.go.set()


def test_a_worker_whose_doer_is_full_rests_and_runs_the_others(stage, settings, monkeypatch):
    settings.AYEWORK = {"POLL_INTERVAL": 60}
    turns: list[object] = []
    claim = Claimer.claim
    monkeypatch.setattr(Claimer, "claim", lambda *given: turns.append(given) or claim(*given))
    own = typed(hold, doers.balanced(1, buffer=0))
    enqueue_many([own() for _ in range(50)])
    with running_worker(concurrency=1):
        eventually(lambda: stage.inside["hold"] == 1)
        for number in range(20):
            assert enqueue(plain(label=str(number))).result(timeout=20) == str(number)
        assert len(turns) < 100
        stage.go.set()
        eventually(lambda: Work.objects.filter(status="success").count() == 70)


def test_doers_of_one_worker_hold_so_many_at_most(stage, monkeypatch):
    monkeypatch.setattr(dispatch, "MOST_HELD", 4)
    own = typed(hold, doers.unlimited())
    handles = enqueue_many([own(label="x") for _ in range(12)])
    with running_worker(concurrency=1):
        eventually(lambda: stage.inside["hold"] == 4)
        assert pending() == 8
        stage.go.set()
        assert [handle.result(timeout=20) for handle in handles] == ["x"] * 12
    assert stage.most_inside["hold"] <= 4


def test_types_may_share_a_doer(stage):
    shared = doers.balanced(2, buffer=0)
    one, other = typed(hold, shared, queue="mail"), typed(hold, shared, name="doing.other", order="unit")
    enqueue_many([kind(label=kind.name) for _ in range(5) for kind in (one, other)])
    with running_worker(concurrency=1):
        eventually(lambda: stage.inside["hold"] == 2)
        assert set(stage.began) == {one.name, other.name}  # each has its share
        stage.go.set()
        eventually(lambda: Work.objects.filter(status="success").count() == 10)
    assert stage.most_inside["hold"] == 2


def test_the_doer_of_a_batch_type_counts_batches(stage):
    own = batch_work(name="doing.several", doer=doers.balanced(2, buffer=0), size=3, max_wait=0.01)(hold_all)
    handles = enqueue_many([own("x") for _ in range(15)])
    with Worker(concurrency=1) as worker:
        eventually(lambda: stage.inside["hold"] == 2)
        assert enqueue(plain(label="through")).result(timeout=20) == "through"
        assert (pending(), worker._in_flight.unfinished, worker._in_flight.in_doers) == (9, 0, 2)
        stage.go.set()
        assert [handle.result(timeout=20) for handle in handles] == ["xxx"] * 15
    assert stage.most_inside["hold"] == 2
    assert worker._in_flight.active == 0


def test_drain_does_without_doers(stage):
    own = typed(note, doers.rate_limited(1, 3600))
    enqueue_many([own(label="x") for _ in range(3)])
    assert drain().succeeded == 3
    assert not any(name.startswith("ayework-doer") for name in stage.threads)
