"""The value of a group, folded from what its members contribute."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple


class Contribution(NamedTuple):
    """One member's word on the group's value.

    ``append`` folds the value already there instead of replacing it; ``final`` locks for good.
    """

    value: Any
    final: bool = False
    append: Callable[[Any], Any] | None = None


class GroupValue(NamedTuple):
    """A group's value: ``present`` tells a contributed None from nothing at all."""

    value: Any = None
    present: bool = False
    final: bool = False


def fold(current: GroupValue, contributions: Iterable[Contribution]) -> GroupValue:
    """Apply contributions in order: the last wins, ``append`` folds, nothing passes a final one.

    >>> add = lambda total: (total or 0) + 2
    >>> fold(GroupValue(), [Contribution(1), Contribution(2, append=add)]).value
    3
    >>> fold(GroupValue(), [Contribution(1, final=True), Contribution(2)]).value
    1
    """
    value, present, final = current
    for contribution in contributions:
        if final:
            break
        value, present, final = folded(value, contribution), True, contribution.final
    return GroupValue(value, present, final)


def folded(existing: Any, contribution: Contribution) -> Any:
    """Return the new value that one contribution makes of the existing one (None at first)."""
    return contribution.append(existing) if contribution.append else contribution.value
