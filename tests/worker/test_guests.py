"""Guests of the slots: the thread that hands over runs quick works, and nobody waits long for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from django_ayework.worker.slots import line as line_module
from django_ayework.worker.slots import slots as module
from django_ayework.worker.slots.runners import Guest
from django_ayework.worker.slots.slots import Slots
from tests.processes import eventually
from tests.worker.loads import LONG, Known, Load, thread

NOW = -1.0  # seconds of patience that are always over


@pytest.fixture
def slots(monkeypatch) -> Iterator[Slots]:
    monkeypatch.setattr(module, "run_load", lambda load, services: load.run())
    monkeypatch.setattr(module, "without_outcome", lambda load: [])
    made = Slots(2, None, lambda load, outcomes: load.ended.set(), pace=Known())
    made.line.watch()
    yield made
    made.stop(LONG)


@pytest.fixture
def guest() -> Guest:
    return Guest()


@contextmanager
def stuck_guest(slots: Slots, guest: Guest, behind: tuple[Load, ...] = ()) -> Iterator[Load]:
    """Let a guest be stuck in a work, with others behind it."""
    begun, gate = threading.Event(), threading.Event()
    stuck = Load("quick", lambda: [begun.set(), gate.wait(LONG)])
    slots.submit([stuck, *behind], guest)
    with thread(lambda: slots.run_as(guest), "guest"):
        assert begun.wait(LONG)
        yield stuck
        gate.set()


def all_end(*loads: Load) -> bool:
    return all(load.ended.wait(LONG) for load in loads)


def test_a_guest_runs_quick_works_in_its_thread(slots, guest):
    loads = [Load("quick") for _ in range(3)]
    slots.submit(loads, guest)
    assert (guest.has_slot, slots.free) == (True, 1)
    with thread(lambda: slots.run_as(guest), "guest"):
        assert all_end(*loads)
    assert {load.thread for load in loads} == {"guest"}
    assert (guest.has_slot, slots.free, slots.pause()) == (False, 2, float("inf"))


def test_works_that_are_not_quick_are_not_for_guests(slots, guest):
    loads = [Load("slow"), Load("quick")]
    slots.submit(loads, guest)
    assert all_end(*loads)
    assert not slots.run_as(guest)
    assert {load.thread for load in loads}.isdisjoint({"guest", threading.current_thread().name})


def test_a_guest_leaves_works_behind_its_own_to_threads_when_they_are_not_quick(slots, guest):
    quick, slow = Load("quick"), Load("slow")
    slots.submit([quick, slow], guest)
    assert slots.run_as(guest)
    assert all_end(slow)
    assert slow.thread.startswith("ayework-slot-")


def test_a_work_in_which_an_abort_may_be_raised_is_not_for_guests(slots, guest, monkeypatch):
    """It might come when the thread is at something else again."""
    monkeypatch.setattr(line_module, "is_interruptible", lambda load: True)
    load = Load("quick")
    slots.submit([load], guest)
    assert not guest.has_slot
    assert all_end(load)


def test_a_guest_is_not_welcome_while_a_thread_is_at_quick_works(slots, guest):
    gate = threading.Event()
    first, second = Load("quick", lambda: gate.wait(LONG)), Load("quick")
    slots.submit([first])
    slots.submit([second], guest)
    assert not guest.has_slot
    gate.set()
    assert all_end(first, second)
    assert second.thread == first.thread


def test_a_guest_is_not_welcome_without_a_free_slot(slots, guest):
    gate = threading.Event()
    slow, quick = [Load("slow", lambda: gate.wait(LONG)) for _ in range(2)], Load("quick")
    slots.submit(slow)
    slots.submit([quick], guest)
    assert not guest.has_slot
    gate.set()
    assert all_end(*slow, quick)


def test_a_guest_is_not_welcome_while_nobody_watches_and_whoever_would_is_told(slots, guest):
    told: list[str] = []
    slots.line.on_unwatched = lambda: told.append("unwatched")
    slots.line.unwatch(after=NOW)
    load = Load("quick")
    slots.submit([load], guest)
    assert (guest.has_slot, told) == (False, ["unwatched"])
    assert all_end(load)


def test_guests_are_watched_while_there_is_one_and_a_while_longer(slots, guest):
    slots.submit([Load("quick")], guest)
    slots.line.unwatch(after=NOW)
    assert slots.line.is_watched
    slots.run_as(guest)
    slots.line.unwatch(after=LONG)
    assert slots.line.is_watched
    slots.line.unwatch(after=NOW)
    assert not slots.line.is_watched


def test_a_guest_that_is_stuck_is_left_and_others_run_what_is_behind(slots, guest):
    behind = (Load("quick"), Load("slow"), Load("quick"))
    with stuck_guest(slots, guest, behind) as stuck:
        assert not slots.line.take_leave_of(guest, patience=LONG)
        assert not guest.is_left
        assert slots.line.take_leave_of(guest, patience=NOW)
        assert all_end(*behind)
        assert not stuck.ended.is_set()
        assert slots.free == 1
    assert (guest.is_left, guest.has_slot, slots.free) == (True, False, 2)


def test_a_guest_between_two_works_is_not_left(slots, guest):
    """Its thread is at something else, where it would not know."""
    slots.submit([Load("quick")], guest)
    assert not slots.line.take_leave_of(guest, patience=NOW)
    slots.run_as(guest)
    assert not slots.line.take_leave_of(guest, patience=NOW)
    assert not guest.is_left


def test_no_other_guest_is_welcome_before_one_that_was_left_has_gone(slots, guest):
    """Each may have a connection of its own for handlers."""
    with stuck_guest(slots, guest):
        slots.line.take_leave_of(guest, patience=NOW)
        slots.line._no_guests_before.clear()
        slots.submit([first := Load("quick")], other := Guest())
        assert not other.has_slot
        assert all_end(first)
        eventually(lambda: slots.free == 1)
    slots.submit([Load("quick")], other)
    assert other.has_slot
    slots.run_as(other)


def test_a_guest_that_was_left_takes_no_other_work(slots, guest):
    with stuck_guest(slots, guest):
        slots.line.take_leave_of(guest, patience=NOW)
        gate = threading.Event()
        busy = [Load("slow", lambda: gate.wait(LONG)), Load("quick")]
        slots.submit(busy)
        slots.line._no_guests_before.clear()
    gate.set()
    assert all_end(*busy)
    assert busy[1].thread.startswith("ayework-slot-")


def test_works_of_a_type_that_a_guest_was_stuck_in_are_not_for_guests_for_a_while(slots, guest, monkeypatch):
    with stuck_guest(slots, guest):
        slots.line.take_leave_of(guest, patience=NOW)
    slots.submit([after := Load("quick")], other := Guest())
    assert not other.has_slot
    assert all_end(after)
    eventually(lambda: slots.free == 2)
    monkeypatch.setitem(slots.line._no_guests_before, "quick", 0.0)
    slots.submit([Load("quick")], other)
    assert other.has_slot
    slots.run_as(other)


def test_a_guest_whose_turn_is_over_keeps_its_slot_and_goes_on_later(slots, guest, monkeypatch):
    monkeypatch.setattr(module, "LONGEST_TURN", NOW)
    monkeypatch.setattr(type(slots._turns), "is_wanted", True)
    loads = [Load("quick") for _ in range(3)]
    slots.submit(loads, guest)
    ended = []
    while slots.run_as(guest):
        ended.append(sum(load.ended.is_set() for load in loads))
    assert ended == [1, 2, 3]
    assert slots.free == 2


def test_a_guest_that_does_not_come_is_not_waited_for(slots, guest):
    loads = [Load("quick"), Load("slow")]
    slots.submit(loads, guest)
    slots.line.relieve(NOW)
    assert all_end(*loads)
    assert slots.free == 1  # until it comes, and finds nothing to do
    assert slots.run_as(guest)
    assert slots.free == 2


def test_a_regular_guest_is_given_the_slot_of_the_thread_at_quick_works(slots, guest):
    called = threading.Event()
    slots.line.on_quick = called.set
    gate = threading.Event()
    first, second = Load("quick", lambda: gate.wait(LONG)), Load("quick")
    slots.submit([first, second])
    slots.line.regular = guest
    gate.set()
    assert called.wait(LONG)
    assert (guest.has_slot, second.ended.is_set()) == (True, False)
    with thread(lambda: slots.run_as(guest), "guest"):
        assert all_end(first, second)
    assert (second.thread, slots.free) == ("guest", 2)


def test_a_regular_guest_that_was_left_is_given_no_slot(slots, guest):
    gate = threading.Event()
    slots.line.regular = guest
    guest.is_left = True
    first, second = Load("quick", lambda: gate.wait(LONG)), Load("quick")
    slots.submit([first, second])
    gate.set()
    assert all_end(first, second)
    assert not guest.has_slot
