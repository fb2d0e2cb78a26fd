"""Whose turn it is: scores for a weighted choice among those that want to run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Candidate(Protocol):
    """Something that wants its share: of what is free, ``weight`` parts are its own."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def weight(self) -> float:
        """Its share relative to the others'; 0 or less excludes it."""
        ...

    @property
    def pending(self) -> int:
        """How much of it is being done right now."""
        ...

    @property
    def priority(self) -> float:
        """Only those of the highest priority have a chance."""
        ...


def weights(candidates: Iterable[Candidate]) -> list[float]:
    """Return how much each candidate deserves to be next, in order; 0 for those that must not be.

    Choose one with the probability score / sum of scores. Candidates of a weight of 0 or less are dropped,
    then all but those of the highest priority. The scores of the rest are
    ``weight·(total pending + 1) − total weight·pending``, so who has more than its share waits until the
    others have caught up. Unless everybody was dropped, at least one score is above 0.

    >>> from types import SimpleNamespace as Type
    >>> weights([Type(name="mail", weight=1, pending=0, priority=0),
    ...          Type(name="video", weight=10, pending=2, priority=0),
    ...          Type(name="chores", weight=50, pending=0, priority=-1)])
    [3, 8, 0]
    """
    given = list(candidates)
    eligible = [candidate for candidate in given if candidate.weight > 0]
    highest = max((candidate.priority for candidate in eligible), default=0)
    racing = [candidate for candidate in eligible if candidate.priority == highest]
    pending = sum(candidate.pending for candidate in racing)
    weight = sum(candidate.weight for candidate in racing)
    return [
        max(0, one.weight * (pending + 1) - weight * one.pending)
        if one.weight > 0 and one.priority == highest
        else 0
        for one in given
    ]
