"""Works that wait for one another in a circle, so that none of them can ever start."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias


class Need(NamedTuple):
    """The end of so many of these works, for which a work waits."""

    number: int
    of: Sequence[str]


#: What works wait for, by their ids: the needs of each must all be met. Other works wait for nothing.
Needs: TypeAlias = Mapping[str, Sequence[Need]]


def circle(needs: Needs) -> list[str]:
    """Return a circle of works: each waits for the next, and the last for the first. Empty without a circle.

    >>> circle({"a": [Need(1, ["b"])], "b": [Need(2, ["c", "a"])]})
    ['a', 'b']
    >>> circle({"a": [Need(1, ["b"])], "b": [Need(1, ["c", "a"])]})
    []
    """
    stuck = never_met(needs)
    path: dict[str, int] = {}
    id = next(iter(stuck), None)
    while id is not None and id not in path:
        path[id] = len(path)
        id = next(
            other
            for need in needs[id]
            if sum(each not in stuck for each in need.of) < need.number
            for other in need.of
            if other in stuck
        )
    return [] if id is None else list(path)[path[id] :]


def never_met(needs: Needs) -> dict[str, int]:
    """Return the works whose needs cannot all be met, with how many: all others may end, in some order."""
    waiting = {id: len(of_one) for id, of_one in needs.items()}
    lacking: list[tuple[str, int]] = []  # the work of each need, and how many ends it lacks
    needed_by: dict[str, list[int]] = defaultdict(list)
    for id, of_one in needs.items():
        for need in of_one:
            held = [other for other in need.of if other in needs]
            for other in held:
                needed_by[other].append(len(lacking))
            lacking.append((id, need.number - len(need.of) + len(held)))
            waiting[id] -= lacking[-1][1] <= 0
    free = [id for id, number in waiting.items() if not number]
    while free:
        ended = free.pop()
        del waiting[ended]
        for place in needed_by[ended]:
            id, lack = lacking[place]
            lacking[place] = id, lack - 1
            if lack == 1:
                waiting[id] -= 1
                if not waiting[id]:
                    free.append(id)
    return waiting
