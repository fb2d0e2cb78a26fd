"""Limits of a worker: slots, attempts, memory, backpressure, and reports of a backlog."""

import math
import threading
from itertools import repeat

import pytest

from django_ayework import doers, enqueue, enqueue_many, work
from django_ayework.api import command_worker
from django_ayework.errors import InvalidOption
from django_ayework.flow.settle import Settlement, Success
from django_ayework.models import WorkerProcess
from django_ayework.rules.retry import die
from django_ayework.rules.states import Reason
from django_ayework.store.rows import find_row
from django_ayework.testing import running_worker
from django_ayework.testing.factories import WorkFactory
from django_ayework.worker import admission, threads
from django_ayework.worker import executor as executor_module
from django_ayework.worker.admission import MEGABYTE, BacklogMonitor, Backpressure, Retirement, resident_bytes
from django_ayework.worker.executor import Executor
from django_ayework.worker.worker import Worker
from tests.clocks import Clock, put_in_place
from tests.marks import each_database
from tests.processes import eventually
from tests.worker.works import hold, quick

LONG = 30.0
pytestmark = pytest.mark.vendors("sqlite")


class Load:
    """Something to run that is no work."""

    deliveries = ()

    def __init__(self, act=lambda: None) -> None:
        self.work_type = None
        self.act = act
        self.ended = threading.Event()

    def start(self) -> bool:
        return True

    def run(self) -> list[object]:
        self.act()
        return []


@pytest.fixture
def executor(monkeypatch):
    monkeypatch.setattr(executor_module, "run", lambda load, services: load.run())
    monkeypatch.setattr(executor_module, "without_outcome", lambda load: [])
    made = Executor(4, None, lambda load, outcomes: load.ended.set())
    yield made
    made.stop(LONG)


def all_end(loads: list[Load]) -> bool:
    return all(load.ended.wait(LONG) for load in loads)


def test_loads_start_in_the_order_in_which_they_were_submitted(executor):
    executor.concurrency = 1
    begun: list[int] = []
    loads = [Load(lambda number=number: begun.append(number)) for number in range(50)]
    executor.submit(loads[:20])
    executor.submit(loads[20:])
    assert all_end(loads)
    assert begun == list(range(50))


@pytest.mark.parametrize("place", [0, 50])
def test_a_stuck_load_holds_up_nothing_but_its_slot(executor, place):
    gate = threading.Event()
    stuck, others = Load(lambda: gate.wait(LONG)), [Load() for _ in range(100)]
    executor.submit([*others[:place], stuck, *others[place:]])
    assert all_end(others)
    assert not stuck.ended.is_set()
    gate.set()
    assert stuck.ended.wait(LONG)


def test_slow_loads_that_follow_quick_ones_fill_all_slots(executor):
    together = threading.Barrier(4, timeout=LONG)
    loads = [*(Load() for _ in range(50)), *(Load(together.wait) for _ in range(8))]
    executor.submit(loads)
    assert all_end(loads)
    assert not together.broken


def test_an_idle_executor_wakes_the_thread_that_ran_last(executor):
    for _ in range(5):
        load = Load()
        executor.submit([load])
        assert load.ended.wait(LONG)
        while executor.free < 4:
            pass
    assert len(executor._threads) == 1


def test_attempts_count_once_all_of_them_have_begun():
    retirement = Retirement(10, None)
    assert retirement.attempts_left(8) == 2
    assert not retirement.judge(9, lambda: True)
    assert not retirement.judge(10, lambda: False), "some may be given back"
    assert retirement.judge(10, lambda: True)
    assert retirement.attempts_left(3) == 0, "what was reached stays so"


def test_memory_is_looked_at_now_and_then(monkeypatch):
    uses = [99 * MEGABYTE, 101 * MEGABYTE, MEGABYTE]
    monkeypatch.setattr(admission, "resident_bytes", lambda: uses.pop(0))
    retirement = Retirement(None, 100)
    assert not retirement.judge(0, lambda: True)
    assert not retirement.judge(0, lambda: True), "it has just looked"
    monkeypatch.setattr(admission, "MEASURE_EVERY", 0.0)
    assert retirement.judge(0, lambda: True)
    assert retirement.judge(0, lambda: True)
    assert retirement.reached == "101 MB are in use, more than 100"


def test_where_the_system_reports_no_memory_the_peak_counts(monkeypatch, tmp_path):
    now = resident_bytes()
    assert now > 10 * MEGABYTE
    monkeypatch.setattr(admission, "STATM", tmp_path / "nowhere")
    peak = resident_bytes()
    assert peak >= now * 0.9
    monkeypatch.setattr(admission.sys, "platform", "darwin")  # which reports bytes
    assert resident_bytes() <= peak / 1000


def test_the_hook_of_backpressure_is_given_what_runs_and_how_attempts_have_ended_by_type(settings):
    seen = []
    assert Backpressure().pause(active=3) == 0, "there is no hook"
    settings.AYEWORK = {"BACKPRESSURE": seen.append}
    pressure = Backpressure()
    endings = [("shop.add", Success())] * 2 + [
        ("shop.add", die(Reason.ABORTED, "no")),
        ("shop.pay", Success()),
    ]
    for type, ending in endings:
        pressure.count([(None, Settlement(find_row(WorkFactory(type=type).id), ending))])
    assert pressure.pause(active=4) == 0
    [info] = seen
    assert (info.active, dict(info.failed)) == (4, {"shop.add": 1})
    assert dict(info.succeeded) == {"shop.add": 2, "shop.pay": 1}


def test_its_answer_holds_until_it_has_passed(settings, monkeypatch):
    clock, answers = put_in_place(Clock(), admission, monkeypatch), iter([5, 0, None, 2])
    settings.AYEWORK = {"BACKPRESSURE": lambda info: next(answers)}
    pressure = Backpressure()
    assert pressure.pause(active=0) == 5
    clock.now += 2
    assert pressure.pause(active=0) == 3
    clock.now += 3
    assert [pressure.pause(active=0) for _ in range(3)] == [0, 0, 2]


async def ahook(info):
    return 1.5


@pytest.mark.parametrize(
    ("hook", "pause", "phases"),
    [(ahook, 1.5, []), (lambda info: 1 / 0, 0.25, ["queue"])],
    ids=["async", "raises, so it holds back for a poll"],
)
def test_a_hook_may_be_async_and_one_that_raises_is_reported(settings, reported, hook, pause, phases):
    settings.AYEWORK = {**settings.AYEWORK, "BACKPRESSURE": hook, "POLL_INTERVAL": 0.25}
    assert Backpressure().pause(active=0) == pause
    assert [phase for _, phase in reported] == phases


@pytest.fixture
def watch(settings, monkeypatch):
    """Let a monitor look once in so many seconds at whether a worker is behind; the result is its reports."""
    reports, clock = [], put_in_place(Clock(), admission, monkeypatch)
    monitor = BacklogMonitor()
    settings.AYEWORK = {"ON_BACKLOG": reports.append, "BACKLOG_AFTER": 10, "BACKLOG_EVERY": 30}

    def watch(*looks: bool, step: int = 1):
        for behind in looks:
            monitor.note(behind, 3, lambda queue: queue == "default")
            clock.now += step
        return [(info.active, info.queued, info.behind_for) for info in reports]

    return watch


@each_database
def test_it_reports_after_a_while_of_being_behind_with_the_true_depth(watch):
    WorkFactory.create_batch(7)
    WorkFactory.create_batch(2, queue="others")
    WorkFactory.create_batch(2, status="scheduled")
    assert watch(*repeat(True, 5), step=4) == [(3, 7, 12.0)]


def test_full_slots_are_no_backlog_while_nothing_waits(watch):
    assert watch(*repeat(True, 60)) == []
    WorkFactory()
    assert [queued for _, queued, _ in watch(*repeat(True, 15))] == [1]


def test_it_reports_again_while_that_lasts_and_not_after_it_has_ended(watch):
    WorkFactory()
    assert watch(*repeat(True, 60), False, *repeat(True, 10)) == [(3, 1, 10.0), (3, 1, 40.0)]
    assert watch(True) == [(3, 1, 10.0), (3, 1, 40.0), (3, 1, 10.0)]


@each_database
def test_a_worker_asks_the_hook_before_it_claims_and_claims_nothing_while_it_is_held_back(settings):
    asked, go = [], threading.Event()
    settings.AYEWORK = {
        "BACKPRESSURE": lambda info: asked.append(info) or (None if go.is_set() else 0.01),
        "POLL_INTERVAL": 0.05,
    }
    handle = enqueue(quick())
    with running_worker():
        eventually(lambda: len(asked) > 2)
        assert handle.state().attempt == 0
        go.set()
        handle.result(timeout=20)
        eventually(lambda: asked[-1].succeeded.get("worker.quick"))
    assert asked[0].succeeded == {}


def test_a_worker_that_is_held_back_for_good_polls_and_obeys(settings):
    settings.AYEWORK = {"BACKPRESSURE": lambda info: math.inf, "POLL_INTERVAL": 0.05}
    handle = enqueue(quick())
    with running_worker() as worker:
        eventually(WorkerProcess.objects.exists)
        command_worker(worker.id, "stop")
        eventually(lambda: worker.is_stopping)
    assert (handle.state().status, worker.lost) == ("pending", "")


@pytest.mark.parametrize("hook", ["ACCEPT", "BACKPRESSURE"])
def test_a_hook_that_goes_on_failing_is_reported_at_growing_intervals(settings, monkeypatch, reported, hook):
    calls = []
    monkeypatch.setattr(threads, "BEGIN_AGAIN_AFTER", 3600.0)
    more = {hook: lambda info: calls.append(info) or 1 / 0, "POLL_INTERVAL": 0.02}
    settings.AYEWORK = {**settings.AYEWORK, **more}
    enqueue_many([quick(number=number) for number in range(10)])
    with running_worker(concurrency=2):
        eventually(lambda: len(calls) > 30)
    assert reported == [("division by zero", "queue")]


@pytest.mark.parametrize("hook", ["ACCEPT", "BACKPRESSURE"])
def test_a_hook_that_fails_again_after_an_answer_is_reported_at_once(settings, monkeypatch, reported, hook):
    calls = []

    def fails_twice(info):
        calls.append(info)
        if len(calls) in (1, 3):
            raise ValueError(len(calls))
        return hook == "ACCEPT"

    monkeypatch.setattr(threads, "BEGIN_AGAIN_AFTER", 3600.0)
    settings.AYEWORK = {**settings.AYEWORK, hook: fails_twice, "POLL_INTERVAL": 0.02}
    with running_worker(concurrency=1):
        for number in range(4):
            enqueue(quick(number=number)).result(timeout=20)
        eventually(lambda: len(calls) > 3)
    assert reported == [("1", "queue"), ("3", "queue")]


def test_a_worker_with_one_slot_reports_that_it_is_behind_while_a_doer_has_room(settings):
    """Each work that ends wakes the worker, which finds room in the doer, and nothing to fill it."""
    reports, told = [], threading.Event()
    settings.AYEWORK = {"ON_BACKLOG": lambda info: reports.append(info) or told.set(), "BACKLOG_AFTER": 0.2}
    work(name="worker.in_a_doer", doer=doers.balanced(3))(lambda: None)
    brief = work(name="worker.brief")(lambda: told.wait(0.05) and None)
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
    assert (reports[0].active, reports[0].queued) == (2, 4)
    assert reports[0].behind_for >= 0.05
    reports.clear()
    with running_worker(concurrency=4):  # one that catches up is not behind
        assert [enqueue(quick(number=n)).result(timeout=20) for n in range(3)] == [0, 1, 2]
    assert reports == []


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        *(("concurrency", value, "a whole number, 1 or more") for value in (0, -1, "8", 1.5, True)),
        *(("max_works", value, "a whole number, 1 or more") for value in (0, "8")),
        *(("max_memory", value, "a whole number, 1 or more") for value in (-1, "500")),
        *((option, [quick], "names, as texts") for option in ("queues", "types", "exclude_types")),
    ],
)
def test_a_worker_refuses_numbers_and_names_that_cannot_be_used(option, value, text):
    with pytest.raises(InvalidOption) as refusal:
        Worker(**{option: value})
    shown = value[0] if isinstance(value, list) else value
    assert str(refusal.value) == f"expected {option} to be {text}, got: {shown!r}."
