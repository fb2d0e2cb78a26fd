"""What to do when the database could not be reached: wait a little longer each time, or try once more."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar

from django.db import InterfaceError, OperationalError, connections

from django_ayework.store.database import connection

T = TypeVar("T")


class Recovery:
    """Pauses in seconds, each about twice the one before, spread so that workers do not come back as one."""

    def __init__(self, first: float, longest: float) -> None:
        self._first, self._longest = first, longest
        self._next = first
        #: Whether it was not reached the last time either.
        self.goes_on = False

    def fail(self) -> float:
        """Note another failure; return how long to wait."""
        self.goes_on = True
        pause, self._next = self._next, min(self._next * 2, self._longest)
        return pause * random.uniform(0.75, 1.0)  # noqa: S311  # spreads the fleet

    def succeed(self) -> None:
        """Note that it was reached: the next pause is a short one again."""
        self._next = self._first
        self.goes_on = False


def twice(act: Callable[[], T]) -> T:
    """Do something that asks the database; once more if the connection that was open has been lost."""
    was_open = connection().connection is not None
    try:
        return act()
    except (OperationalError, InterfaceError):
        connections.close_all()
        if not was_open:
            raise
        return act()
