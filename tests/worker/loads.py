"""Loads that run without a work, and threads that meet them, for tests of slots."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django_ayework.worker.slots.pace import Pace

LONG = 30.0


class Load:
    """Something to run; of a type that is quick, or slow."""

    def __init__(self, type: str, act: Callable[[], object] = lambda: None) -> None:
        self.type = type
        self.act = act
        self.thread = ""
        self.ended = threading.Event()

    def start(self) -> bool:
        return True

    def run(self) -> list[object]:
        self.thread = threading.current_thread().name
        self.act()
        return []


@contextmanager
def thread(act: Callable[[], object], name: str | None = None) -> Iterator[threading.Thread]:
    """Do something in another thread, which has ended when the block has."""
    made = threading.Thread(target=act, name=name, daemon=True)
    made.start()
    yield made
    made.join(LONG)
    assert not made.is_alive()


class Known(Pace):
    """Knows from the start which type is quick."""

    def is_quick(self, type: str) -> bool:
        return type == "quick"
