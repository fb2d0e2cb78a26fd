"""Turns: one thread at a time, in order, and nobody is kept waiting for long."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from django_ayework.worker import slots as slots_module
from django_ayework.worker import turns as module
from django_ayework.worker.slots import Slots
from django_ayework.worker.turns import NoTurns, Turns, turns_of_database
from tests.processes import eventually
from tests.worker.loads import LONG, Known, Load


@pytest.fixture
def turns(monkeypatch) -> Turns:
    monkeypatch.setattr(module, "PATIENCE", LONG)
    return Turns()


@contextmanager
def thread(act: Callable[[], object]) -> Iterator[threading.Thread]:
    made = threading.Thread(target=act, daemon=True)
    made.start()
    yield made
    made.join(LONG)
    assert not made.is_alive()


def waiting(turns: Turns) -> int:
    return len(turns._line)


def test_one_thread_at_a_time_in_the_order_in_which_they_came(turns):
    went: list[object] = []

    def go(number: int) -> None:
        with turns:
            went.append(number)
            assert waiting(turns) == 2 - number
            went.append(number)

    with turns:
        threads = []
        for number in range(3):
            threads.append(threading.Thread(target=go, args=(number,), daemon=True))
            threads[-1].start()
            eventually(lambda number=number: waiting(turns) == number + 1)
        assert (turns.is_wanted, went) == (True, [])
    for each in threads:
        each.join(LONG)
    assert went == [0, 0, 1, 1, 2, 2]
    assert not turns.is_wanted


def test_the_turn_of_a_thread_that_keeps_it_is_taken_away(turns, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 0.001)
    has_it = threading.Event()

    def take() -> None:
        with turns:
            has_it.set()

    with turns, thread(take):
        assert has_it.wait(LONG)


def test_whoever_lost_the_turn_cannot_give_it_back(turns, monkeypatch):
    """The thread that has it now would meet the next one."""
    monkeypatch.setattr(module, "PATIENCE", 0.001)
    has_it, done = threading.Event(), threading.Event()

    def take() -> None:
        with turns:
            has_it.set()
            done.wait(LONG)

    turns.__enter__()
    with thread(take):
        assert has_it.wait(LONG)
        owner = turns._thread
        turns.__exit__()
        assert turns._thread == owner != threading.get_ident()
        done.set()
    assert turns._thread is None


def test_quick_works_let_others_have_their_turn(turns, monkeypatch):
    monkeypatch.setattr(slots_module, "run_load", lambda load, services: load.run())
    monkeypatch.setattr(slots_module, "LONGEST_TURN", 0.0)
    slots = Slots(4, None, lambda load, outcomes: load.ended.set(), turns, Known())
    came: list[str] = []
    between = [Load("quick", lambda: came.append("work")) for _ in range(3)]

    def settle() -> None:
        with turns:
            came.append("settler")

    begun = threading.Event()
    first = Load("quick", lambda: begun.set() or eventually(lambda: turns.is_wanted))
    slots.submit([first, *between])
    assert begun.wait(LONG)
    with thread(settle):
        pass
    assert all(load.ended.wait(LONG) for load in between)
    slots.stop(LONG)
    assert came[0] == "settler"


def test_works_that_are_not_quick_need_no_turn(turns, monkeypatch):
    monkeypatch.setattr(slots_module, "run_load", lambda load, services: load.run())
    slots = Slots(4, None, lambda load, outcomes: load.ended.set(), turns, Known())
    slow = Load("slow")
    with turns:
        slots.submit([slow])
        assert slow.ended.wait(LONG)
    slots.stop(LONG)


@pytest.mark.django_db
def test_only_with_sqlite_threads_take_turns(database_vendor):
    assert isinstance(turns_of_database(), Turns if database_vendor == "sqlite" else NoTurns)
