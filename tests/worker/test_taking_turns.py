"""Who takes turns, and only with SQLite: settlers and slots, which keep nobody waiting for long."""

from __future__ import annotations

import threading

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
