"""Interrupting at random moments, hundreds of times, in real threads: nothing leaks out of a handler."""

import queue
import random
import sys
import threading
from collections import Counter, deque
from typing import Any

import pytest

from django_ayework.define.context import AbortReason, AbortSignal
from django_ayework.errors import Aborted
from django_ayework.worker import interruption
from django_ayework.worker.interruption import Interruption

ROUNDS = 1000
PATIENCE = 30.0


@pytest.fixture
def only_printed(monkeypatch: pytest.MonkeyPatch):
    """Threads take turns all the time, and a handler is interrupted as often as anybody asks for it.

    The value is what Python would only print, such as an exception that came while an object was finalized.
    pytest's own hook is written in Python, so the next exception may come within it. This one is in C, where
    none can come.
    """
    kept: deque[Any] = deque(maxlen=1000)
    monkeypatch.setattr(sys, "unraisablehook", kept.append)
    monkeypatch.setattr(interruption, "AGAIN_AFTER", 0.0)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield kept
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
        self.calls, self.go, self.over = (queue.SimpleQueue[Any]() for _ in range(3))
        self.leaks: list[str] = []
        self.ends: Counter[str] = Counter()
        self.rounds = self.strikes_begun = self.strikes_done = 0
        self.interrupter = threading.Thread(target=self.interrupt, args=(random.Random(-seed),), daemon=True)
        self.thread = threading.Thread(target=self.run, daemon=True)

    def interrupt(self, shuffled: random.Random) -> None:
        """Interrupt what runs, and what ran before it in the same thread, which must do nothing."""
        while (calls := self.calls.get()) is not None:
            self.go.put(True)
            spin(shuffled.randrange(200))
            self.strikes_begun += 1
            for _ in range(shuffled.randrange(1, 4)):
                for call in calls:
                    call.interrupt()
            self.strikes_done += 1
            self.over.put(True)

    def run(self) -> None:
        before = self.interruption(-1)
        for number in range(ROUNDS):
            self.rounds = number + 1
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
        work = self.random.choice(
            [self.brief, self.until_strikes_begin, self.until_struck, self.until_struck]
        )
        self.calls.put((now, before))
        try:
            now.call(lambda: handler(work))
            self.ends["returned"] += 1
        except Aborted as error:
            assert error.reason == f"round {number}", "the exception of another round"
            assert now.arrived is not None
            self.ends[where(error)] += 1
        except ArithmeticError:
            self.ends["failed"] += 1
        spin(30)

    def brief(self) -> int:
        """End some time before the strikes, while they come, or after them."""
        return spin(self.random.randrange(self.random.choice([3, 300, 3000])))

    def until_strikes_begin(self) -> None:
        """End at about the moment of the first strike, however quick the machine is."""
        while self.strikes_begun < self.rounds:
            spin(3)

    def until_struck(self) -> None:
        """Last for as long as it takes to be interrupted."""
        while self.strikes_done < self.rounds:
            spin(3)

    def plain(self, work) -> None:
        self.go.get(timeout=PATIENCE)
        work()

    def catching(self, work) -> None:
        try:
            self.plain(work)
        except Aborted:
            return

    def failing(self, work) -> None:
        self.plain(work)
        raise ArithmeticError

    def cleaning_up(self, work) -> None:
        try:
            self.plain(work)
        finally:
            spin(20)


def where(error: BaseException) -> str:
    """Name the function in which an exception came."""
    trace: Any = error.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    return str(trace.tb_frame.f_code.co_name)


@pytest.mark.races
def test_nothing_leaks_out_of_a_handler(only_printed: deque[Any]):
    threads = [Thread(seed) for seed in (1, 2)]
    for thread in threads:
        thread.interrupter.start()
        thread.thread.start()
    for thread in threads:
        thread.thread.join(90)
        assert not thread.thread.is_alive(), thread.ends
        thread.interrupter.join(PATIENCE)
    assert [leak for thread in threads for leak in thread.leaks] == []
    assert [printed for printed in only_printed if not issubclass(printed.exc_type, Aborted)] == []
    for thread in threads:
        assert thread.ends.total() == ROUNDS
        assert ROUNDS - thread.ends["returned"] - thread.ends["failed"] > ROUNDS / 4, thread.ends
        assert thread.ends["_close"] > 0, f"none came while a call was ending: {thread.ends}"
