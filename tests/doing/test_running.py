"""Doers in a real worker of this process; works that wait in one, and doers that break: no work is lost."""

import logging
import threading
from contextlib import nullcontext
from typing import Any

import pytest

from django_ayework import (
    Retry,
    batch_work,
    cancel,
    complete,
    doers,
    enqueue,
    enqueue_many,
    pause,
    resume,
    work,
)
from django_ayework.flow.notify import revoked_works
from django_ayework.models import Work
from django_ayework.testing import drain, running_worker
from django_ayework.worker import dispatch, maintenance, threads
from django_ayework.worker.claimer import Claimer
from django_ayework.worker.worker import Worker
from tests.doing.kit import pending, typed
from tests.doing.works import NEVER_IN_A_TEST, hold, hold_all, hold_async, note, note_all, plain
from tests.marks import each_database
from tests.processes import eventually

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("quick_polls"),
    pytest.mark.vendors("sqlite"),
]


@pytest.mark.parametrize(
    ("burst", "doer_of"),
    [(False, "type"), (True, "settings"), pytest.param(False, "settings", marks=each_database)],
)
def test_the_doer_of_a_type_runs_its_works_and_slots_run_the_others(stage, settings, burst, doer_of):
    settings.AYEWORK = {"POLL_INTERVAL": 0.05} | (
        {"DOER": doers.balanced(2)} if doer_of == "settings" else {}
    )
    own = typed(note, doers.balanced(2))
    handles = enqueue_many([own(label="own") for _ in range(20)] + [plain(label="plain") for _ in range(5)])
    if burst:
        Worker(burst=True, concurrency=1).run()
    with nullcontext() if burst else running_worker(concurrency=1):
        assert [handle.result(timeout=20) for handle in handles] == ["own"] * 20 + ["plain"] * 5
    ran = set(zip(stage.began, [name.rstrip("0123456789") for name in stage.threads], strict=True))
    others = "ayework-slot-" if doer_of == "type" else "ayework-doer"
    assert ran == {("own", "ayework-doer"), ("plain", others)}
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


@each_database
def test_who_has_the_fewest_running_is_next(stage):
    """One of the two that run first ends, and only then is there a choice."""
    turns = threading.Semaphore(0)

    def one_by_one(label: str) -> None:
        stage.enter("one", label)
        turns.acquire(timeout=NEVER_IN_A_TEST)

    doer = doers.balanced(2, buffer=8)
    own = typed(one_by_one, doer)
    for label in "aaabc":
        enqueue(own(label=label), fairness=label, priority=int(label == "a"))
    with running_worker():
        eventually(lambda: doer.available() == 5 and stage.began == ["a", "a"])
        turns.release()
        eventually(lambda: len(stage.began) == 3)
        assert stage.began[2] == "b"
        turns.release(4)
        eventually(lambda: Work.objects.filter(status="success").count() == 5)


def test_a_limited_rate_is_kept(stage):
    own = typed(note, doers.rate_limited(2, 3600))
    enqueue_many([own(label="x") for _ in range(6)])
    with running_worker():
        eventually(lambda: Work.objects.filter(status="success").count() == 2)
        assert enqueue(plain(label="y")).result(timeout=20) == "y"
    assert stage.began.count("x") == 2
    assert (pending(), Work.objects.filter(type=own.name, attempt=1).count()) == (4, 2)


@pytest.mark.parametrize("act", [cancel, complete, None], ids=["cancelled", "completed", "released"])
def test_works_that_do_not_run_use_up_no_start_of_a_limited_rate(stage, settings, act):
    """The doer has started two of four, and takes others as soon as the rest is void."""
    settings.AYEWORK = {"POLL_INTERVAL": 0.05}
    doer = doers.rate_limited(2, 3600)
    own = typed(note, doer)
    handles = enqueue_many([own(label="x") for _ in range(4)])
    with running_worker() as worker:
        eventually(lambda: stage.began == ["x"] * 2 and worker._in_flight.in_doers == 2)
        eventually(lambda: doer.available() == 0)
        if act is None:
            pause(type=own.name)
        for handle in handles[2:]:
            if act is not None:
                act(handle.id)
        eventually(lambda: worker._in_flight.in_doers == 0 and doer.available() == 2)
        resume(type=own.name)
        enqueue(own(label="y"))
        eventually(lambda: worker._in_flight.in_doers > 0)
    assert stage.began == ["x"] * 2


def test_room_that_comes_with_time_is_noticed_at_once(stage, settings):
    settings.AYEWORK = {"POLL_INTERVAL": 60}
    own = typed(hold, doers.rate_limited(1, 0.05))
    enqueue_many([own() for _ in range(3)])
    with running_worker():
        eventually(lambda: stage.inside["hold"] == 3)
        stage.go.set()


@each_database
def test_neither_a_full_doer_nor_busy_slots_hold_up_the_others(stage, settings, monkeypatch):
    """A worker whose doer is full rests."""
    settings.AYEWORK = {"POLL_INTERVAL": 60}
    turns, claim = [], Claimer.claim
    monkeypatch.setattr(Claimer, "claim", lambda *given: turns.append(given) or claim(*given))
    own, quick = typed(hold, doers.balanced(1, buffer=0)), typed(note, doers.balanced(1), name="doing.quick")
    slow = work(name="doing.slow")(hold)
    enqueue_many([own() for _ in range(30)])
    with running_worker(concurrency=1):
        eventually(lambda: stage.inside["hold"] == 1)
        for number in range(8):
            assert enqueue(plain(label=str(number))).result(timeout=20) == str(number)
        assert len(turns) < 100
        enqueue_many([slow() for _ in range(5)])
        eventually(lambda: stage.inside["hold"] == 2)
        assert enqueue(quick(label="x")).result(timeout=20) == "x"
        stage.go.set()
        eventually(lambda: Work.objects.filter(status="success").count() == 44)


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


@each_database
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


@each_database
def test_a_worker_that_stops_gives_back_what_waits_in_its_doers(stage):
    own = typed(hold, doers.balanced(1, buffer=2))
    enqueue_many([own() for _ in range(3)])
    worker = Worker()
    with worker:
        eventually(lambda: stage.inside["hold"] == 1 and not pending())
        threading.Timer(0.2, stage.go.set).start()
    assert (worker._in_flight.in_doers, worker._in_flight.active) == (0, 0)
    ended = [("pending", 0), ("pending", 0), ("success", 1)]
    assert sorted(Work.objects.values_list("status", "attempt")) == ended


def test_a_worker_that_stops_leaves_no_thread_of_a_doer_waiting_for_async_works(stage):
    doer = doers.balanced(4, buffer=200)
    own = typed(hold_async, doer)
    for _ in range(5):
        stage.go.clear()
        enqueue_many([own() for _ in range(150)])
        with Worker():
            eventually(lambda: stage.inside["hold"] == 4)
            threading.Timer(0.03, stage.go.set).start()
        drained = threading.Thread(target=doer.drained, daemon=True)
        drained.start()
        drained.join(timeout=10)
        assert not drained.is_alive()
    assert not [each for each in threading.enumerate() if each.name == "ayework-async"]


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


class Failing(Broken):
    """One that breaks at each call of a method."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self.breaks = [place] * 10_000


@pytest.mark.parametrize("place", ["available", "submit"])
def test_a_doer_that_goes_on_failing_is_reported_at_growing_intervals(stage, caplog, monkeypatch, place):
    monkeypatch.setattr(threads, "BEGIN_AGAIN_AFTER", 3600.0)
    monkeypatch.setattr(maintenance, "STALE_AFTER", 0.01)
    failing = typed(note, Failing(place))
    handles = enqueue_many([failing(label="x") for _ in range(20)])
    with caplog.at_level(logging.ERROR, "django_ayework"), Worker():
        eventually(lambda: f"{place} broke" in caplog.text)
        for _ in range(5):
            enqueue(plain(label="y")).result(timeout=20)
        eventually(lambda: pending() == 20)
    assert len(caplog.records) == 1
    assert {handle.state().attempt for handle in handles} == {0}


class Mute(Broken):
    """One that takes no listeners."""

    def on_room(self, listener: Any) -> Any:
        raise OSError("no listeners")


def test_a_doer_that_takes_no_listeners_is_reported_and_lets_the_worker_start(stage, caplog):
    doer = Mute()
    doer.breaks.clear()
    works = [typed(note, doer)(label="x"), plain(label="y")]
    with caplog.at_level(logging.ERROR, "django_ayework"), Worker():
        assert [enqueue(each).result(timeout=20) for each in works] == ["x", "y"]
    assert "could not say when it has room" in caplog.text


class Careless(Broken):
    """One that calls each task twice, or raises an error though it calls the task, before it or after."""

    def __init__(self, raises: bool) -> None:
        super().__init__()
        self.breaks = []
        self.raises = raises
        self.is_late = False

    def submit(self, task: Any, *arguments: Any) -> None:
        called = threading.Event()

        def call() -> None:
            try:
                task()
            finally:
                called.set()

        self.inner.submit(call, *arguments)
        if self.raises:
            self.is_late = not self.is_late
            assert self.is_late or called.wait(20)
            raise OSError("submit broke")
        self.inner.submit(task, *arguments)


@pytest.mark.parametrize("raises", [False, True])
def test_a_task_that_a_doer_calls_twice_or_refuses_too_late_runs_and_counts_once(stage, monkeypatch, raises):
    monkeypatch.setattr(maintenance, "STALE_AFTER", 0.05)
    own = typed(note, Careless(raises))
    several = batch_work(name="doing.several", doer=Careless(raises), size=3, max_wait=0.01)(note_all)
    handles = enqueue_many([own(label="x") for _ in range(9)] + [several("y") for _ in range(9)])
    with Worker() as worker:
        assert [handle.result(timeout=20) for handle in handles] == ["x"] * 9 + ["y"] * 9
        eventually(lambda: worker._in_flight.active == 0)
        assert worker._in_flight.in_doers == 0
    assert sorted("".join(stage.began)) == ["x"] * 9 + ["y"] * 9


def test_an_error_in_the_handler_is_the_works_not_the_doers(stage, caplog):
    def fail() -> None:
        raise RuntimeError("no")

    own = typed(fail, doers.balanced(1), retry=Retry(attempts=1))
    handle = enqueue(own())
    with running_worker():
        eventually(lambda: handle.state().status == "dead")
    assert "a task of a doer raised" not in caplog.text
