"""Limits of a worker: attempts, memory, backpressure, and reports of a backlog."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from django_ayework import doers, enqueue, enqueue_many, work
from django_ayework.flow.settle import Settlement, Success
from django_ayework.rules.retry import die
from django_ayework.rules.states import Reason
from django_ayework.store.rows import find_row
from django_ayework.testing import running_worker
from django_ayework.testing.factories import WorkFactory
from django_ayework.worker import admission
from django_ayework.worker.admission import MEGABYTE, BacklogMonitor, Backpressure, Limits, resident_bytes
from tests.clocks import Clock
from tests.processes import eventually
from tests.worker.works import hold, quick


def test_attempts_count_once_all_of_them_have_begun():
    limited = Limits(10, None)
    assert limited.attempts_left(8) == 2
    assert not limited.judge(9, lambda: True)
    assert not limited.judge(10, lambda: False), "some may be given back"
    assert limited.judge(10, lambda: True)
    assert limited.attempts_left(3) == 0, "what was reached stays so"


def test_memory_is_looked_at_now_and_then(monkeypatch: pytest.MonkeyPatch):
    uses = [99 * MEGABYTE, 101 * MEGABYTE, MEGABYTE]
    monkeypatch.setattr(admission, "resident_bytes", lambda: uses.pop(0))
    limited = Limits(None, 100)
    assert not limited.judge(0, lambda: True)
    assert not limited.judge(0, lambda: True), "it has just looked"
    monkeypatch.setattr(admission, "MEASURE_EVERY", 0.0)
    assert limited.judge(0, lambda: True)
    assert limited.judge(0, lambda: True)
    assert limited.reached == "101 MB are in use, more than 100"


def test_where_the_system_reports_no_memory_the_peak_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    now = resident_bytes()
    assert now > 10 * MEGABYTE
    monkeypatch.setattr(admission, "STATM", tmp_path / "nowhere")
    peak = resident_bytes()
    assert peak >= now * 0.9
    monkeypatch.setattr(admission.sys, "platform", "darwin")  # which reports bytes
    assert resident_bytes() <= peak / 1000


@pytest.fixture
def clock() -> Clock:
    return Clock()


def ended(ending: object, type: str = "shop.add") -> list[Any]:
    row = find_row(WorkFactory(type=type).id)
    assert row is not None
    return [(None, Settlement(row, ending))]  # type: ignore[arg-type]


class TestBackpressure:
    def test_the_hook_is_given_what_runs_and_how_attempts_have_ended_by_type(self, clock, settings):
        seen = []
        assert Backpressure(clock.monotonic).pause(active=3) == 0, "there is no hook"
        settings.AYEWORK = {"BACKPRESSURE": seen.append}
        pressure = Backpressure(clock.monotonic)
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
        pressure = Backpressure(clock.monotonic)
        assert pressure.pause(active=0) == 5
        clock.now += 2
        assert pressure.pause(active=0) == 3
        clock.now += 3
        assert [pressure.pause(active=0) for _ in range(3)] == [0, 0, 2]

    def test_it_may_be_async(self, clock, settings):
        async def hook(info):
            return 1.5

        settings.AYEWORK = {"BACKPRESSURE": hook}
        assert Backpressure(clock.monotonic).pause(active=0) == 1.5

    def test_one_that_raises_is_reported_and_holds_back_for_a_poll(self, clock, settings):
        reported = []
        settings.AYEWORK = {
            "BACKPRESSURE": lambda info: 1 / 0,
            "ON_ERROR": lambda error, phase: reported.append(phase),
            "POLL_INTERVAL": 0.25,
        }
        assert Backpressure(clock.monotonic).pause(active=0) == 0.25
        assert reported == ["queue"]


class TestBacklogMonitor:
    @pytest.fixture
    def reports(self, settings):
        reports = []
        settings.AYEWORK = {"ON_BACKLOG": reports.append, "BACKLOG_AFTER": 10, "BACKLOG_EVERY": 30}
        return reports

    def test_it_reports_after_a_while_of_being_behind_with_the_true_depth(self, clock, reports):
        WorkFactory.create_batch(7)
        WorkFactory.create_batch(2, queue="others")
        WorkFactory.create_batch(2, status="scheduled")
        monitor = BacklogMonitor(clock.monotonic)
        for _ in range(5):
            monitor.note(True, 3, lambda queue: queue == "default")
            clock.now += 4
        [info] = reports
        assert (info.active, info.queued, info.behind_for) == (3, 7, 12.0)

    def test_full_slots_are_no_backlog_while_nothing_waits(self, clock, reports):
        monitor = BacklogMonitor(clock.monotonic)
        for _ in range(60):
            monitor.note(True, 3, lambda queue: True)
            clock.now += 1
        assert reports == []
        WorkFactory()
        for _ in range(15):
            monitor.note(True, 3, lambda queue: True)
            clock.now += 1
        assert [info.queued for info in reports] == [1]

    def test_it_reports_again_while_that_lasts_and_not_after_it_has_ended(self, clock, reports):
        WorkFactory()
        monitor = BacklogMonitor(clock.monotonic)
        for behind in [True] * 60 + [False] + [True] * 9:
            monitor.note(behind, 0, lambda queue: True)
            clock.now += 1
        assert [info.behind_for for info in reports] == [10.0, 40.0]
        clock.now += 1
        monitor.note(True, 0, lambda queue: True)
        assert [info.behind_for for info in reports] == [10.0, 40.0, 10.0]


def test_a_worker_calls_the_hook_before_it_claims(settings):
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


def test_a_worker_with_one_slot_reports_that_it_is_behind_while_a_doer_has_room(settings):
    """Each work that ends wakes the worker, which finds room in the doer, and nothing to fill it."""
    reports, was_told = [], threading.Event()
    settings.AYEWORK = {
        "ON_BACKLOG": lambda info: reports.append(info) or was_told.set(),
        "BACKLOG_AFTER": 0.2,
    }
    work(name="worker.in_a_doer", doer=doers.balanced(3))(lambda: None)
    brief = work(name="worker.brief")(lambda: was_told.wait(0.05) and None)
    enqueue_many([brief() for _ in range(30)])
    with running_worker(concurrency=1):
        eventually(lambda: reports, seconds=20)
    assert reports[0].active >= 1
    assert reports[0].queued


def test_a_worker_reports_that_it_is_behind(settings, stage):
    reports = []
    settings.AYEWORK = {"ON_BACKLOG": reports.append, "BACKLOG_AFTER": 0.05, "POLL_INTERVAL": 0.02}
    enqueue_many([hold(number=n) for n in range(6)])
    with running_worker(concurrency=2):
        eventually(lambda: reports)
        stage.go.set()
    assert reports[0].active == 2
    assert reports[0].queued == 4
    assert reports[0].behind_for >= 0.05
    reports.clear()
    with running_worker(concurrency=4):  # one that catches up is not behind
        assert [enqueue(quick(number=n)).result(timeout=20) for n in range(3)] == [0, 1, 2]
    assert reports == []
