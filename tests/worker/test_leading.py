"""Leading: the thread that claims runs quick works, and another one claims when it is stuck in one."""

from __future__ import annotations

import threading

import pytest
from django.db import connections

from django_ayework import enqueue, enqueue_many, work
from django_ayework.models import Work
from django_ayework.testing import running_worker
from django_ayework.worker.slots import leading
from django_ayework.worker.slots.leading import Leadership
from django_ayework.worker.slots.line import Line
from django_ayework.worker.slots.pace import Pace
from django_ayework.worker.worker import Worker
from tests.processes import eventually
from tests.worker.loads import LONG
from tests.worker.works import hold, quick

LEADER = "ayework-leader"


@work(name="worker.where")
def where() -> str:
    return threading.current_thread().name


@work(name="worker.sessions")
def sessions() -> list[int]:
    """Use the database; tell whose connection it is."""
    Work.objects.count()
    return [id(connections["default"]), threading.get_ident()]


@pytest.fixture
def all_are_quick(monkeypatch) -> None:
    """Every type is taken to be quick at once."""
    monkeypatch.setattr(Pace, "is_quick", lambda self, type: True)


@pytest.fixture
def watched(monkeypatch) -> None:
    """Guests are welcome from the start."""
    init = Line.__init__

    def watched(self: Line, *args: object) -> None:
        init(self, *args)
        self.watch()

    monkeypatch.setattr(Line, "__init__", watched)


pytestmark = pytest.mark.usefixtures("quick_polls")
quickly = pytest.mark.usefixtures("all_are_quick", "watched")


@quickly
def test_a_quick_work_runs_in_the_thread_that_has_claimed_it():
    with running_worker():
        assert [enqueue(where()).result(timeout=20) for _ in range(3)] == [LEADER] * 3


@quickly
def test_a_few_quick_works_run_there_one_after_the_other():
    handles = enqueue_many([where() for _ in range(3)])
    with running_worker(concurrency=8):
        assert {handle.result(timeout=20) for handle in handles} == {LEADER}


@pytest.mark.usefixtures("all_are_quick")
def test_nothing_runs_there_until_somebody_watches():
    with running_worker() as worker:
        first = enqueue(where()).result(timeout=20)
        eventually(lambda: worker._slots.line.is_watched)
        second = enqueue(where()).result(timeout=20)
    assert (first, second) == ("ayework-slot-0", LEADER)


@quickly
def test_another_thread_leads_when_one_is_stuck_in_a_work(stage):
    stuck = enqueue(hold(number=1))
    with running_worker(concurrency=3) as worker:
        eventually(lambda: stage.started)
        others = enqueue_many([quick(number=number) for number in range(5)])
        assert [other.result(timeout=20) for other in others] == list(range(5))
        assert stuck.state().status == "running"
        assert len(worker._leadership._threads) == 2
        stage.go.set()
        assert stuck.result(timeout=20) == 1
        eventually(lambda: sum(thread.is_alive() for thread in worker._leadership._threads) == 1)
        assert enqueue(quick(number=7)).result(timeout=20) == 7
    assert Work.objects.get(id=stuck.id).attempt == 1


@quickly
def test_whoever_leads_next_has_the_connection_of_the_one_before(monkeypatch, stage):
    """So a worker needs no more of them than it says. The other one leaves it alone when it comes back."""
    engines: dict[str | int, set[int]] = {}
    turn = Worker._turn

    def noted(self, guest):
        engines.setdefault(threading.get_ident(), set()).add(id(connections["default"]))
        return turn(self, guest)

    monkeypatch.setattr(Worker, "_turn", noted)
    stuck = enqueue(hold())
    with running_worker(concurrency=3) as worker:
        eventually(lambda: stage.started and len(engines) == 2)
        enqueue(quick()).result(timeout=20)
        stage.go.set()
        stuck.result(timeout=20)
        eventually(lambda: sum(thread.is_alive() for thread in worker._leadership._threads) == 1)
        enqueue(quick()).result(timeout=20)
        first, second = engines.values()
    assert first == second
    assert len(first) == 1


@quickly
def test_a_worker_stops_while_the_thread_that_led_is_stuck(settings, stage):
    settings.AYEWORK = {"SHUTDOWN_GRACE": 0.1}
    stuck = enqueue(hold())
    worker = Worker(concurrency=1)
    worker.start()
    eventually(lambda: stage.started)
    assert worker.stop()
    state = Work.objects.get(id=stuck.id)
    assert (state.status, state.attempt) == ("pending", 0)


@quickly
def test_a_handler_in_that_thread_has_connections_of_its_own(monkeypatch):
    """The engine's are set up for the engine's statements."""
    engines: set[int] = set()
    claim = Worker._turn

    def noted(self, guest):
        engines.add(id(connections["default"]))
        return claim(self, guest)

    monkeypatch.setattr(Worker, "_turn", noted)
    with running_worker():
        first, second = (enqueue(sessions()).result(timeout=20) for _ in range(2))
    assert first == second
    assert first[0] not in engines


def test_an_error_of_the_loop_itself_ends_the_worker(monkeypatch):
    monkeypatch.setattr(Worker, "_is_over", lambda self: 1 / 0)
    worker = Worker()
    with pytest.raises(ZeroDivisionError):
        worker.run()
    assert worker.vitals.phase == "stopped"


def test_whoever_oversees_wakes_when_it_is_to_watch_and_sleeps_again(monkeypatch):
    monkeypatch.setattr(leading, "LOOK_EVERY", 0.001)
    monkeypatch.setattr(leading, "WATCH_FOR", 0.0)
    line = Line(1, Pace(), lambda load: None, lambda: None)
    done, watched = threading.Event(), threading.Event()
    watch = line.watch
    monkeypatch.setattr(line, "watch", lambda: [watch(), watched.set()])
    leadership = Leadership(lambda guest: done.wait(LONG), line)
    overseer = threading.Thread(target=leadership.oversee, daemon=True)
    overseer.start()
    for _ in range(2):
        line.on_unwatched()
        assert watched.wait(LONG)
        watched.clear()
        eventually(lambda: not line.is_watched)
    done.set()
    overseer.join(LONG)
    assert not overseer.is_alive()


def test_what_calls_again_before_it_is_watched_does_not_keep_whoever_oversees_awake(monkeypatch):
    """Each work that a guest might have run calls: nothing would be left of the rest between two looks."""
    line = Line(1, Pace(), lambda load: None, lambda: None)
    done, looked = threading.Event(), threading.Event()
    watch, unwatch = line.watch, line.unwatch
    leadership = Leadership(lambda guest: done.wait(LONG), line)
    called_at_rest: list[bool] = []
    monkeypatch.setattr(line, "watch", lambda: [line.on_unwatched(), watch()])

    def look(after: float) -> None:
        called_at_rest.append(leadership._called.is_set())
        unwatch(after)
        looked.set()

    monkeypatch.setattr(line, "unwatch", look)
    overseer = threading.Thread(target=leadership.oversee, daemon=True)
    overseer.start()
    line.on_unwatched()
    assert looked.wait(LONG)
    assert called_at_rest[0] is False
    done.set()
    overseer.join(LONG)
