"""Turns: one thread at a time, in order, and nobody is kept waiting for long."""

from __future__ import annotations

import threading
import time

import pytest
from django.db import OperationalError

from django_ayework.flow.services import EngineServices
from django_ayework.worker import settler as settler_module
from django_ayework.worker.settler import Settler
from django_ayework.worker.slots import slots as slots_module
from django_ayework.worker.slots import turns as module
from django_ayework.worker.slots.slots import Slots
from django_ayework.worker.slots.turns import NoTurns, Turns, turns_of_database
from tests.processes import eventually
from tests.worker.loads import LONG, Known, Load, thread


@pytest.fixture
def turns(monkeypatch) -> Turns:
    monkeypatch.setattr(module, "PATIENCE", LONG)
    return Turns()


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


def test_a_turn_is_not_taken_away_before_it_has_lasted_too_long(turns, monkeypatch):
    """Whoever waits for a second turn has waited long, though neither has lasted long."""
    monkeypatch.setattr(module, "PATIENCE", 0.001)
    asked = threading.Event()
    take_away = turns._take_away

    def refused(place: object) -> float:
        turns._since = time.monotonic() + LONG  # as if this turn had only begun
        left = take_away(place)
        asked.set()
        return left

    monkeypatch.setattr(turns, "_take_away", refused)
    came: list[str] = []
    with turns:
        waiting_thread = threading.Thread(target=lambda: [turns.__enter__(), came.append("in")], daemon=True)
        waiting_thread.start()
        assert asked.wait(LONG)
        assert (waiting(turns), came) == (1, [])
    waiting_thread.join(LONG)
    assert came == ["in"]


def test_what_is_put_off_is_done_when_the_turn_ends(turns):
    done: list[int] = []
    turns.after(lambda: done.append(0))
    assert done == [0]
    with turns:
        turns.after(lambda: done.append(1))
        turns.after(lambda: done.append(2))
        assert (done, turns.is_wanted) == ([0], True)
    assert (done, turns.is_wanted) == ([0, 1, 2], False)


def test_only_the_thread_whose_turn_it_is_puts_off(turns):
    done: list[int] = []
    with turns:
        with thread(lambda: turns.after(lambda: done.append(1))):
            pass
        assert done == [1]


def test_what_was_put_off_is_done_when_the_turn_is_taken_away(turns, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 0.001)
    done: list[int] = []
    turns.__enter__()
    turns.after(lambda: done.append(1))
    with thread(lambda: [turns.__enter__(), turns.__exit__()]):
        pass
    assert done == [1]
    turns.after(lambda: done.append(2))
    assert done == [1, 2]
    turns.__exit__()


def test_what_was_put_off_is_done_before_the_next_turn_begins(turns):
    done: list[str] = []

    def go() -> None:
        with turns:
            done.append("next")

    def slowly() -> None:
        eventually(lambda: waiting(turns) == 1)
        done.append("put off")

    with turns:
        turns.after(slowly)
        following = threading.Thread(target=go, daemon=True)
        following.start()
    following.join(LONG)
    assert done == ["put off", "next"]


def test_a_settler_that_stops_has_the_outcomes_that_were_put_off(turns, monkeypatch):
    """The work behind them may never end."""
    monkeypatch.setattr(module, "PATIENCE", 0.001)
    settled: list[object] = []
    settler = Settler(None, settled.append, turns)
    monkeypatch.setattr(settler, "_settle", settled.extend)
    submitted, gate = threading.Event(), threading.Event()

    def run() -> None:
        with turns:
            settler.submit("work", "success")
            submitted.set()
            gate.wait(LONG)

    with thread(run):
        assert submitted.wait(LONG)
        settler.start()
        settler.stop(LONG)
        assert settled == [("work", "success")]
        gate.set()


@pytest.fixture
def settler(turns, monkeypatch) -> Settler:
    monkeypatch.setattr(module, "PATIENCE", LONG)
    made = Settler(EngineServices(), lambda deliveries: None, turns)
    monkeypatch.setattr(made, "_note", lambda batch, report: made.noted.extend(batch))
    made.noted = []
    return made


def test_outcomes_may_be_settled_by_whoever_has_the_turn(settler, turns, monkeypatch):
    settled: list[object] = []
    monkeypatch.setattr(settler_module, "settle", settled.extend)
    settler.start()
    with turns:
        settler.submit("work", "success")
        settler.submit("another", "failure")
        settler.settle_here()
        assert settled == ["success", "failure"]
    settler.stop(LONG)
    assert (settled, len(settler.noted)) == (["success", "failure"], 2)


def test_what_cannot_be_settled_there_is_left_to_the_settler_in_its_order(settler, turns, monkeypatch):
    here = threading.get_ident()
    settled: list[object] = []

    def settle(settlements: list[object]) -> None:
        if threading.get_ident() == here:
            raise OperationalError("database is locked")
        settled.extend(settlements)

    monkeypatch.setattr(settler_module, "settle", settle)
    settler.start()
    with turns:
        for number in range(3):
            settler.submit("work", number)
        settler.settle_here()
        assert (settled, settler.noted) == ([], [])
    eventually(lambda: len(settler.noted) == 3)
    settler.stop(LONG)
    assert settled == [0, 1, 2]


def test_that_is_so_even_if_the_turn_was_taken_away_meanwhile(settler, turns, monkeypatch):
    """Whoever took it found nothing that was ready."""
    here = threading.get_ident()

    def settle(settlements: list[object]) -> None:
        if threading.get_ident() == here:
            monkeypatch.setattr(module, "PATIENCE", 0.001)
            with thread(lambda: [turns.__enter__(), turns.__exit__()]):
                pass
            raise OperationalError("database is locked")

    monkeypatch.setattr(settler_module, "settle", settle)
    settler.start()
    eventually(lambda: settler._sleeps)
    with turns:
        settler.submit("work", "success")
        settler.settle_here()
    eventually(lambda: settler.noted)
    settler.stop(LONG)


def test_what_is_put_off_more_than_once_is_done_once(turns):
    done: list[int] = []

    def act() -> None:
        done.append(1)

    with turns:
        for _ in range(3):
            turns.after(act)
    assert done == [1]


def test_without_turns_nothing_is_put_off():
    done: list[int] = []
    turns = NoTurns()
    with turns:
        turns.after(lambda: done.append(1))
        assert done == [1]


def test_the_outcome_of_a_quick_work_does_not_wait_for_a_long_one_behind_it(turns, monkeypatch):
    """Nobody is in line, so somebody has to come: whoever relieves the slots."""
    monkeypatch.setattr(module, "PATIENCE", 0.001)
    monkeypatch.setattr(slots_module, "run_load", lambda load, services: load.run())
    gate = threading.Event()
    settled: list[str] = []
    slots = Slots(
        1, None, lambda load, outcomes: turns.after(lambda: settled.append(load.type)), turns, Known()
    )
    stuck = Load("quick", lambda: gate.wait(LONG))
    slots.submit([Load("quick"), stuck])
    eventually(lambda: turns.is_wanted)
    assert (settled, slots.pause()) == ([], slots_module.PATIENCE)
    with turns:
        assert settled == ["quick"]
    gate.set()
    slots.stop(LONG)
    assert settled == ["quick", "quick"]


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
