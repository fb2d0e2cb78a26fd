"""Loads that run without a work, for tests of slots."""

from __future__ import annotations

import threading
from collections.abc import Callable

from django_ayework.worker.pace import Pace

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


class Known(Pace):
    """Knows from the start which type is quick."""

    def is_quick(self, type: str) -> bool:
        return type == "quick"
