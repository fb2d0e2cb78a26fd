"""Interrupting at random moments, thousands of times, in real threads: nothing leaks out of a handler."""

from __future__ import annotations

import queue
import random
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from django_ayework.define.signal import AbortReason, AbortSignal
from django_ayework.errors import Aborted
from django_ayework.worker.attempts import interruption
from django_ayework.worker.attempts.interruption import Interruption

pytestmark = pytest.mark.races

ROUNDS = 2500
PATIENCE = 30.0


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Threads take turns all the time, and a handler is interrupted as often as anybody asks for it."""
    monkeypatch.setattr(interruption, "AGAIN_AFTER", 0.0)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def spin(turns: int) -> int:
    total = 0
    for number in range(turns):
        total += number
    return total


class Thread:
    """A thread that runs handlers one after the other, and one that interrupts them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.calls: queue.SimpleQueue[tuple[Interruption, Interruption] | None] = queue.SimpleQueue()
        self.go: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self.over: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self.leaks: list[str] = []
        self.ends: Counter[str] = Counter()
        self.interrupter = threading.Thread(target=self.interrupt, args=(random.Random(-seed),), daemon=True)
        self.thread = threading.Thread(target=self.run, daemon=True)

    def interrupt(self, shuffled: random.Random) -> None:
        """Interrupt what runs, and what ran before it in the same thread, which must do nothing."""
        while (calls := self.calls.get()) is not None:
            self.go.put(True)
            spin(shuffled.randrange(200))
            for _ in range(shuffled.randrange(1, 4)):
                for call in calls:
                    call.strike()
            self.over.put(True)

    def run(self) -> None:
        before = self.interruption(-1)
        for number in range(ROUNDS):
            now = self.interruption(number)
            try:
                self.one(number, now, before)
            except BaseException as leaked:
                self.leaks.append(f"round {number}: {leaked!r}")
            self.over.get(timeout=PATIENCE)
            before = now
        self.calls.put(None)

    def interruption(self, number: int) -> Interruption:
        signal = AbortSignal()
        signal.abort(AbortReason.CANCELLED)
        return Interruption(signal, lambda: Aborted(f"round {number}"))

    def one(self, number: int, now: Interruption, before: Interruption) -> None:
        """Call a handler, then be the engine, which nothing may disturb."""
        handler = self.random.choice([self.plain, self.catching, self.failing, self.cleaning_up])
        turns = self.random.choice([3, 300, 3000])
        self.calls.put((now, before))
        try:
            now.call(lambda: handler(turns))
            self.ends["returned"] += 1
        except Aborted as error:
            assert error.reason == f"round {number}", "the exception of another round"
            assert now.arrived is not None
            self.ends[where(error)] += 1
        except ArithmeticError:
            self.ends["failed"] += 1
        spin(30)

    def plain(self, turns: int) -> int:
        self.go.get(timeout=PATIENCE)
        return spin(self.random.randrange(turns))

    def catching(self, turns: int) -> int:
        try:
            return self.plain(turns)
        except Aborted:
            return 0

    def failing(self, turns: int) -> int:
        self.plain(turns)
        raise ArithmeticError

    def cleaning_up(self, turns: int) -> int:
        try:
            return self.plain(turns)
        finally:
            spin(20)


def where(error: BaseException) -> str:
    """Name the function in which an exception came."""
    trace: Any = error.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    return str(trace.tb_frame.f_code.co_name)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a place that only prints
def test_nothing_leaks_out_of_a_handler():
    threads = [Thread(seed) for seed in (1, 2)]
    for thread in threads:
        thread.interrupter.start()
        thread.thread.start()
    for thread in threads:
        thread.thread.join(90)
        assert not thread.thread.is_alive(), thread.ends
        thread.interrupter.join(PATIENCE)
    assert [leak for thread in threads for leak in thread.leaks] == []
    ends = sum((thread.ends for thread in threads), Counter[str]())
    assert ends.total() == len(threads) * ROUNDS
    assert ends.total() - ends["returned"] - ends["failed"] > ROUNDS / 2, ends
    assert ends["_close"] > 0, f"none came while a call was ending: {ends}"
