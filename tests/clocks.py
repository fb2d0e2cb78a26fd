"""A clock that stands still until a test moves it."""

from __future__ import annotations

from types import ModuleType
from typing import TypeVar

import pytest


class Clock:
    """Stands in for the module ``time``."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


C = TypeVar("C", bound=Clock)


def put_in_place(clock: C, module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> C:
    """Let a module read this clock instead of ``time``."""
    monkeypatch.setattr(module, "time", clock)
    return clock
