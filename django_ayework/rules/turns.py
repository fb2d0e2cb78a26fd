"""Turns: works of one fairness label after another, where works of several labels wait in a lane.

A turn is a number. Works of equal priority are claimed by their turns, and each work of a label has another
one. A label that begins to wait gets the turn that the lane has come to. So a flood of one label takes up
many turns, and the first work of another label is in the next one.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Texts of so many digits sort as their numbers do.
DIGITS = 16


class Place(NamedTuple):
    """Where works take turns with those of other labels."""

    queue: str
    type: str
    priority: int
    fairness: str


def first_turn(now: datetime) -> int:
    """Return the turn of a work that finds no others waiting: later than any that was given before.

    No lane comes to a turn in less than a microsecond.
    """
    return (now - EPOCH) // timedelta(microseconds=1)


def turn_text(turn: int) -> str:
    """Return a turn as a sort key.

    >>> turn_text(first_turn(datetime(2026, 1, 1, tzinfo=UTC)))
    '1767225600000000'
    """
    return f"{turn:0{DIGITS}d}"
