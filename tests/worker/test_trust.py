"""Runners of quick works are given others like the last without another look at everything, for a moment."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any

import pytest

from django_ayework.worker.batches.batch import Batch
from django_ayework.worker.slots import line as module
from django_ayework.worker.slots.line import TRUST, Line
from django_ayework.worker.slots.pace import Pace
from django_ayework.worker.slots.runners import Guest, Runner
from tests.clocks import Clock, put_in_place
from tests.worker.loads import Load


class Noting(Pace):
    """Keeps what it is told, and counts how often it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[tuple[str, float]] = []
        self.asked = 0
        self.slow: set[str] = set()

    def note(self, type: str, seconds: float, together: int, tried: bool) -> None:
        self.noted.append((type, round(seconds, 6)))

    def is_quick(self, type: str) -> bool:
        self.asked += 1
        return type not in self.slow


class Thread(Runner):
    """Stands in for a thread of the slots: it is given loads, and runs none."""

    def __init__(self) -> None:
        super().__init__()
        self.inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()


@pytest.fixture
def clock(monkeypatch) -> Clock:
    return put_in_place(Clock(), module, monkeypatch)


@pytest.fixture
def pace() -> Noting:
    return Noting()


@pytest.fixture
def guest() -> Guest:
    return Guest()


@pytest.fixture
def run(clock: Clock, pace: Noting, guest: Guest) -> Callable[..., list[str]]:
    """Let a guest run loads, each so many seconds long; return the types of those that it was given."""

    def run(loads: list[Any], seconds: list[float]) -> list[str]:
        line = Line(2, pace, lambda load: None, lambda: pytest.fail("no thread is to run these"))
        line.watch()
        line.join(loads, guest)
        given: list[str] = []
        load = line.next_for_guest(guest)
        while load is not None:
            given.append(load.type)
            clock.now += seconds[len(given) - 1]
            load = line.next_for_guest(guest, load)
        return given

    return run


def test_of_those_that_follow_for_a_moment_the_first_is_noted(run, pace):
    quick = TRUST / 10
    assert run([Load("a") for _ in range(5)], [quick, 2 * quick, quick, quick, quick]) == ["a"] * 5
    assert pace.noted == [("a", round(quick, 6))]


def test_there_is_no_look_in_between(run, pace):
    run([Load("a")], [0.0])
    few = pace.asked
    pace.asked = 0
    run([Load("a") for _ in range(100)], [0.0] * 100)
    assert pace.asked == few


def test_every_work_is_noted_of_those_that_take_longer(run, pace):
    run([Load("a") for _ in range(3)], [TRUST, 2 * TRUST, 3 * TRUST])
    assert pace.noted == [("a", TRUST), ("a", 2 * TRUST), ("a", 3 * TRUST)]


def test_after_a_moment_there_is_another_look(run, pace):
    quick = TRUST / 2
    run([Load("a") for _ in range(6)], [quick, quick, 3 * quick, quick, 2 * quick, quick])
    assert pace.noted == [("a", quick), ("a", 3 * quick), ("a", quick), ("a", quick)]


def test_a_work_of_another_type_is_looked_at(run, pace):
    assert run([Load("a"), Load("a"), Load("b"), Load("b")], [0.0001, 0.0002, 0.0003, 0.0004]) == [*"aabb"]
    assert pace.noted == [("a", 0.0001), ("b", 0.0003)]


def test_works_that_run_together_are_not_for_guests(clock, pace, guest, monkeypatch):
    monkeypatch.setattr(Batch, "type", "a", raising=False)
    first, together = Load("a"), Batch.__new__(Batch)
    thread = Thread()
    line = Line(2, pace, lambda load: None, lambda: thread)
    line.watch()
    line.join([first, together], guest)
    assert line.next_for_guest(guest) is first
    assert line.next_for_guest(guest, first) is None
    assert thread.inbox.get_nowait() is together


def test_a_guest_that_goes_for_a_moment_is_given_nothing(clock, pace, guest):
    line = Line(2, pace, lambda load: None, lambda: pytest.fail("no thread is to run these"))
    line.watch()
    line.join([Load("a"), Load("a")], guest)
    first = line.next_for_guest(guest)
    assert line.next_for_guest(guest, first, goes=True) is None
    assert (guest.has_slot, guest.is_running) == (True, False)
    assert line.next_for_guest(guest) is not None


def test_a_guest_that_was_left_is_given_nothing(clock, pace, guest):
    thread = Thread()
    line = Line(2, pace, lambda load: None, lambda: thread)
    line.watch()
    first, second = Load("a"), Load("a")
    line.join([first, second], guest)
    assert line.next_for_guest(guest) is first
    assert line.take_leave_of(guest, -1.0)
    assert thread.inbox.get_nowait() is second
    assert line.next_for_guest(guest, first) is None


def run_by_thread(clock: Clock, pace: Noting, loads: list[Any], seconds: float) -> list[Any]:
    """Let a thread of the only slot run loads, each so many seconds long; return what it was given."""
    thread = Thread()
    line = Line(1, pace, lambda load: None, lambda: thread)
    given: list[Any] = []
    line.join(loads, None)
    load = thread.inbox.get_nowait()
    while load is not None:
        given.append(load)
        clock.now += seconds
        load = line.next_for(thread, load)
    assert thread.inbox.empty()
    return given


def test_a_thread_of_the_slots_is_trusted_as_a_guest_is(clock, pace):
    few = [Load("a") for _ in range(2)]
    assert run_by_thread(clock, pace, few, TRUST / 100) == few
    asked, pace.asked = pace.asked, 0
    many = [Load("a") for _ in range(50)]
    assert run_by_thread(clock, pace, many, TRUST / 100) == many
    assert pace.asked == asked
    assert len(pace.noted) == 2 + 2  # what it began with, and the first of those that followed


def test_of_works_that_are_not_quick_each_is_noted(clock, pace):
    pace.slow = {"a"}
    run_by_thread(clock, pace, [Load("a") for _ in range(4)], TRUST / 100)
    assert len(pace.noted) == 4


def test_what_a_thread_begins_with_is_noted_each_time(clock, pace):
    thread = Thread()
    line = Line(1, pace, lambda load: None, lambda: thread)
    for _ in range(3):
        line.join([Load("a")], None)
        clock.now += TRUST
        assert line.next_for(thread, thread.inbox.get_nowait()) is None
    assert len(pace.noted) == 3
