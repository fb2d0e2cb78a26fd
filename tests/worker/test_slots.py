"""Slots: which thread runs what, and when others go on."""

from __future__ import annotations

import threading

import pytest

from django_ayework.worker.slots import slots as module
from django_ayework.worker.slots.slots import Slots
from tests.worker.loads import LONG, Known, Load


@pytest.fixture
def slots(monkeypatch):
    monkeypatch.setattr(module, "run_load", lambda load, services: load.run())
    monkeypatch.setattr(module, "without_outcome", lambda load: [])
    made = Slots(4, None, lambda load, outcomes: load.ended.set(), pace=Known())
    yield made
    made.stop(LONG)


def all_end(loads: list[Load]) -> bool:
    return all(load.ended.wait(LONG) for load in loads)


def test_quick_works_share_one_thread(slots):
    loads = [Load("quick") for _ in range(50)]
    slots.submit(loads)
    assert all_end(loads)
    assert {load.thread for load in loads} == {"ayework-slot-0"}


def test_works_start_in_the_order_of_handing_over(slots):
    begun: list[int] = []
    loads = [Load("quick", lambda number=number: begun.append(number)) for number in range(50)]
    slots.submit(loads[:20])
    slots.submit(loads[20:])
    assert all_end(loads)
    assert begun == list(range(50))


def test_works_that_are_not_quick_run_side_by_side(slots):
    together = threading.Barrier(4, timeout=LONG)
    loads = [Load("slow", together.wait) for _ in range(4)]
    slots.submit(loads)
    assert all_end(loads)


def test_works_behind_quick_ones_run_side_by_side(slots):
    together = threading.Barrier(3, timeout=LONG)
    quick = [Load("quick"), Load("quick")]
    loads = [*quick, *(Load("slow", together.wait) for _ in range(3)), Load("quick")]
    slots.submit(loads)
    assert all_end(loads)


def test_a_work_that_is_not_quick_waits_for_none_that_is(slots):
    gate = threading.Event()
    stuck, slow = Load("quick", lambda: gate.wait(LONG)), Load("slow")
    slots.submit([stuck, slow])
    assert slow.ended.wait(LONG)
    assert not stuck.ended.is_set()
    gate.set()
    assert stuck.ended.wait(LONG)


def test_no_more_run_at_once_than_there_are_slots(slots):
    gate, begun, lock = threading.Event(), [], threading.Lock()

    def act() -> None:
        with lock:
            begun.append(1)
        gate.wait(LONG)

    loads = [Load("slow", act) for _ in range(9)]
    slots.submit(loads)
    slots.relieve()
    assert slots.free == 0
    assert len(begun) <= 4
    gate.set()
    assert all_end(loads)


def test_what_waits_behind_a_quick_work_that_takes_long_is_relieved(slots, monkeypatch):
    gate = threading.Event()
    stuck, behind = Load("quick", lambda: gate.wait(LONG)), [Load("quick"), Load("slow")]
    slots.submit([stuck, *behind])
    assert slots.pause() == module.PATIENCE
    assert not any(load.ended.is_set() for load in behind)

    monkeypatch.setattr(module, "PATIENCE", -1.0)
    slots.relieve()
    assert all_end(behind)
    assert not stuck.ended.is_set()
    gate.set()
    assert stuck.ended.wait(LONG)


def test_a_thread_at_quick_works_is_looked_after_even_if_nothing_waits(slots, monkeypatch):
    """Whatever its turn has put off waits for the end of the work that it is at."""
    gate = threading.Event()
    stuck = Load("quick", lambda: gate.wait(LONG))
    slots.submit([stuck])
    assert slots.pause() == module.PATIENCE
    monkeypatch.setattr(module, "PATIENCE", -1.0)
    slots.relieve()
    assert slots.pause() == float("inf")
    gate.set()
    assert stuck.ended.wait(LONG)


def test_whoever_relieves_is_told_when_a_thread_comes_to_quick_works(monkeypatch):
    monkeypatch.setattr(module, "run_load", lambda load, services: load.run())
    told: list[str] = []
    slots = Slots(1, None, lambda load, outcomes: load.ended.set(), pace=Known())
    slots.line.on_quick = lambda: told.append("quick")
    slow, quick = Load("slow", lambda: told.append("slow")), [Load("quick"), Load("quick")]
    slots.submit([slow, *quick])
    assert all_end(quick)
    slots.stop(LONG)
    assert told == ["slow", "quick"]
