"""A clock of the test's own."""

from __future__ import annotations


class Ticks:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now
