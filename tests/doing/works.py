"""Works that tests can hold up and count."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter

from django_ayework import BatchItem, work

NEVER_IN_A_TEST = 60.0


class Stage:
    """What works of this process meet; a test gets a fresh one through the fixture ``stage``."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.began: list[str] = []
        self.threads: list[str] = []
        self.inside: Counter[str] = Counter()
        self.most_inside: Counter[str] = Counter()
        self.lock = threading.Lock()

    def enter(self, kind: str, label: str) -> None:
        with self.lock:
            self.began.append(label)
            self.threads.append(threading.current_thread().name)
            self.inside[kind] += 1
            self.most_inside[kind] = max(self.most_inside[kind], self.inside[kind])

    def leave(self, kind: str) -> None:
        with self.lock:
            self.inside[kind] -= 1


stage = Stage()


def note(label: str = "") -> str:
    stage.enter("note", label)
    stage.leave("note")
    return label


def hold(label: str = "") -> str:
    """Wait until the test says go."""
    stage.enter("hold", label)
    stage.go.wait(NEVER_IN_A_TEST)
    stage.leave("hold")
    return label


async def hold_async(label: str = "") -> str:
    stage.enter("hold", label)
    while not stage.go.is_set():
        await asyncio.sleep(0.01)
    stage.leave("hold")
    return label


def note_all(items: list[BatchItem[str]]) -> list[str]:
    stage.enter("batch", "".join(item.input for item in items))
    stage.leave("batch")
    return [item.input for item in items]


def hold_all(items: list[BatchItem[str]]) -> list[str]:
    """Let a batch wait until the test says go."""
    return [hold("".join(item.input for item in items))] * len(items)


@work(name="doing.plain")
def plain(label: str = "") -> str:
    return note(label)
