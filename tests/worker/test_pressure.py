"""Backpressure and lag, on a clock of the test's own."""

from __future__ import annotations

import threading

import pytest

from django_ayework import doers, enqueue, enqueue_many, work
from django_ayework.flow.settle import Settlement, Success
from django_ayework.hooks import adaptive_delay
from django_ayework.rules.decisions import die
from django_ayework.rules.states import Reason
from django_ayework.store.rows import find_row
from django_ayework.testing import running_worker
from django_ayework.testing.factories import WorkFactory
from django_ayework.worker.limits import BacklogMonitor, Backpressure
from tests.fixtures import undeclared  # noqa: F401
from tests.processes import eventually
from tests.worker.works import hold, quick


class Clock:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def ended(ending: object, type: str = "shop.add") -> Settlement:
    row = find_row(WorkFactory(type=type).id)
    assert row is not None
    return Settlement(row, ending)  # type: ignore[arg-type]


class TestPressure:
    def test_without_a_hook_nothing_holds_back(self, clock):
        assert Backpressure(clock).pause(active=3) == 0

    def test_the_hook_is_given_what_runs_and_how_attempts_have_ended_by_type(self, clock, settings):
        seen = []
        settings.AYEWORK = {"BACKPRESSURE": seen.append}
        pressure = Backpressure(clock)
        for ending in (Success(), Success(), die(Reason.ABORTED, "no")):
            pressure.count(ended(ending))
        pressure.count(ended(Success(), "shop.pay"))
        assert pressure.pause(active=4) == 0
        [info] = seen
        assert (info.active, dict(info.succeeded), dict(info.failed)) == (
            4, {"shop.add": 2, "shop.pay": 1}, {"shop.add": 1},
        )  # fmt: skip

    def test_its_answer_holds_until_it_has_passed(self, clock, settings):
        answers = iter([5, 0, None, 2])
        settings.AYEWORK = {"BACKPRESSURE": lambda info: next(answers)}
        pressure = Backpressure(clock)
        assert pressure.pause(active=0) == 5
        clock.now += 2
        assert pressure.pause(active=0) == 3
        clock.now += 3
        assert [pressure.pause(active=0) for _ in range(3)] == [0, 0, 2]

    def test_it_may_be_async(self, clock, settings):
        async def hook(info):
            return 1.5

        settings.AYEWORK = {"BACKPRESSURE": hook}
        assert Backpressure(clock).pause(active=0) == 1.5

    def test_one_that_raises_is_reported_and_holds_back_for_a_poll(self, clock, settings):
        reported = []
        settings.AYEWORK = {
            "BACKPRESSURE": lambda info: 1 / 0,
            "ON_ERROR": lambda error, phase: reported.append(phase),
            "POLL_INTERVAL": 0.25,
        }
        assert Backpressure(clock).pause(active=0) == 0.25
        assert reported == ["queue"]

    def test_the_adaptive_hook_slows_down_while_attempts_fail(self, clock, settings):
        settings.AYEWORK = {"BACKPRESSURE": adaptive_delay(base=1)}
        pressure = Backpressure(clock)
        pauses = []
        for failures in (1, 1, 0, 0):
            for _ in range(failures):
                pressure.count(ended(die(Reason.ABORTED, "no")))
            pauses.append(pressure.pause(active=0))
            clock.now += 10
        assert pauses == [1, 2, 1, 0]


class TestLag:
    @pytest.fixture
    def told(self, settings):
        told = []
        settings.AYEWORK = {"ON_BACKLOG": told.append, "BACKLOG_AFTER": 10, "BACKLOG_EVERY": 30}
        return told

    def test_it_is_told_after_a_while_of_being_behind_with_the_true_depth(self, clock, told):
        WorkFactory.create_batch(7)
        WorkFactory.create_batch(2, queue="others")
        WorkFactory.create_batch(2, status="scheduled")
        lag = BacklogMonitor(clock)
        for _ in range(5):
            lag.note(True, 3, lambda queue: queue == "default")
            clock.now += 4
        [info] = told
        assert (info.active, info.queued, info.behind_for) == (3, 7, 12.0)

    def test_full_slots_are_no_backlog_while_nothing_waits(self, clock, told):
        lag = BacklogMonitor(clock)
        for _ in range(60):
            lag.note(True, 3, lambda queue: True)
            clock.now += 1
        assert told == []
        WorkFactory()
        for _ in range(15):
            lag.note(True, 3, lambda queue: True)
            clock.now += 1
        assert [info.queued for info in told] == [1]

    def test_it_is_told_again_while_that_lasts_and_not_after_it_has_ended(self, clock, told):
        WorkFactory()
        lag = BacklogMonitor(clock)
        for behind in [True] * 60 + [False] + [True] * 9:
            lag.note(behind, 0, lambda queue: True)
            clock.now += 1
        assert [info.behind_for for info in told] == [10.0, 40.0]
        clock.now += 1
        lag.note(True, 0, lambda queue: True)
        assert [info.behind_for for info in told] == [10.0, 40.0, 10.0]

    def test_nobody_is_told_unless_somebody_wants_to_know(self, clock, settings):
        settings.AYEWORK = {"BACKLOG_AFTER": 1}
        lag = BacklogMonitor(clock)
        lag.note(True, 0, lambda queue: True)
        clock.now += 100
        lag.note(True, 0, lambda queue: True)


def test_a_worker_heeds_the_hook_before_it_claims(settings):
    asked = []

    def hook(info):
        asked.append(info)
        return 0 if len(asked) > 2 else 0.01

    settings.AYEWORK = {"BACKPRESSURE": hook, "POLL_INTERVAL": 0.05}
    handle = enqueue(quick())
    with running_worker():
        handle.result(timeout=20)
        eventually(lambda: asked[-1].succeeded.get("worker.quick"))
    assert asked[0].succeeded == {}


def test_a_worker_that_is_held_back_claims_nothing(settings):
    asked = threading.Event()
    settings.AYEWORK = {"BACKPRESSURE": lambda info: asked.set() or 3600}
    handle = enqueue(quick())
    with running_worker():
        assert asked.wait(20)
    assert handle.state().attempt == 0


@pytest.mark.usefixtures("undeclared")
def test_a_worker_with_one_slot_tells_that_it_is_behind_while_a_doer_has_room(settings):
    """Each work that ends wakes the worker, which finds room in the doer, and nothing to fill it."""
    told, was_told = [], threading.Event()
    settings.AYEWORK = {"ON_BACKLOG": lambda info: told.append(info) or was_told.set(), "BACKLOG_AFTER": 0.2}
    work(name="worker.in_a_doer", doer=doers.balanced(3))(lambda: None)
    brief = work(name="worker.brief")(lambda: was_told.wait(0.05) and None)
    enqueue_many([brief() for _ in range(30)])
    with running_worker(concurrency=1):
        eventually(lambda: told, seconds=20)
    assert told[0].active >= 1
    assert told[0].queued


def test_a_worker_that_catches_up_is_not_behind(settings):
    told = []
    settings.AYEWORK = {"ON_BACKLOG": told.append, "BACKLOG_AFTER": 0.001}
    with running_worker(concurrency=4):
        assert [enqueue(quick(number=n)).result(timeout=20) for n in range(3)] == [0, 1, 2]
    assert told == []


def test_a_worker_tells_that_it_is_behind(settings, stage):
    told = []
    settings.AYEWORK = {"ON_BACKLOG": told.append, "BACKLOG_AFTER": 0.05, "POLL_INTERVAL": 0.02}
    enqueue_many([hold(number=n) for n in range(6)])
    with running_worker(concurrency=2):
        eventually(lambda: told)
        stage.go.set()
    assert told[0].active == 2
    assert told[0].queued == 4
    assert told[0].behind_for >= 0.05
