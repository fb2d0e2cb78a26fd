"""The executor: how many loads run at a time, in which order, and in which threads."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from django_ayework.worker import executor as module
from django_ayework.worker.executor import Executor

LONG = 30.0


class Load:
    """Something to run that is no work."""

    def __init__(self, act: Callable[[], object] = lambda: None) -> None:
        self.work_type = None
        self.act = act
        self.thread = ""
        self.ended = threading.Event()

    def start(self) -> bool:
        return True

    def run(self) -> list[object]:
        self.thread = threading.current_thread().name
        self.act()
        return []


@pytest.fixture
def executor(monkeypatch):
    monkeypatch.setattr(module, "run", lambda load, services: load.run())
    monkeypatch.setattr(module, "without_outcome", lambda load: [])
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


def test_no_more_run_at_once_than_there_are_slots(executor):
    gate, full, begun = threading.Event(), threading.Semaphore(0), []

    def act() -> None:
        begun.append(1)
        full.release()
        gate.wait(LONG)

    loads = [Load(act) for _ in range(9)]
    executor.submit(loads)
    for _ in range(4):
        assert full.acquire(timeout=LONG)
    assert executor.free == 0
    assert len(begun) == 4
    gate.set()
    assert all_end(loads)


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


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit(3)])
def test_a_slot_survives_whatever_the_engine_raises_in_it(executor, error, caplog):
    def fail() -> None:
        raise error

    executor.concurrency = 1
    failing, following = Load(fail), Load()
    executor.submit([failing, following])
    assert all_end([failing, following])
    assert "the engine failed on" in caplog.text
