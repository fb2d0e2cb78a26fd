"""Turns: one thread at a time, in order, and nobody is kept waiting for long."""

from __future__ import annotations

import threading
import time

from django_ayework.worker.slots import turns as module
from django_ayework.worker.slots.turns import NoTurns, Turns
from tests.processes import eventually
from tests.worker.loads import LONG, thread


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


def test_what_one_thread_has_put_off_another_does(turns):
    done: list[str] = []

    def act() -> None:
        done.append(threading.current_thread().name)

    with turns:
        turns.after(act)
        with thread(lambda: turns.after(act), "other"):
            pass
        assert done == ["other"]
    assert done == ["other", threading.current_thread().name]


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
