"""Places: how many works of each share one turn of claiming may take."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from django_ayework.doers import Doer
from django_ayework.worker.claiming.shares import Share

#: Tells how many more works a doer may be given.
Room = Callable[[Doer], int]


def no_room(doer: Doer) -> int:
    """Give no work to any doer."""
    return 0


class Places:
    """Free slots, and the room of each doer, divided evenly among the shares that want them."""

    def __init__(self, slots: int, room: Room = no_room) -> None:
        self._slots = slots
        self._room = room
        self._all: dict[int, int] = {}
        self._left: dict[int, int] = {}

    def of(self, share: Share, rivals: Iterable[Share]) -> int:
        """Return how many a share may take now, which leaves as many to each rival with the same doer."""
        source = id(share.doer)
        if source not in self._all:
            self._all[source] = self._slots if share.doer is None else self._room(share.doer)
            self._left[source] = self._all[source]
        sharers = sum(rival.doer is share.doer for rival in rivals)
        return max(0, min(self._left[source], -(-self._all[source] // max(1, sharers))))

    def take(self, share: Share, places: int) -> None:
        """Note that a share, which was asked for, has taken so many."""
        self._left[id(share.doer)] -= places
