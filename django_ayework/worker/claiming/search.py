"""The search for lanes with pending works that a worker serves."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from django_ayework.rules.scope import Scope
from django_ayework.store.lanes import Lane, lanes_of, pages_of_lanes

#: Queues to find at a time: each claim goes through all of them.
ENOUGH = 100


class LaneSearch:
    """Finds lanes for one worker: those of its queues, or those of some queues after the others.

    A worker of all queues finds about ``ENOUGH`` at a time. The next search goes on behind the last queue, so
    each queue has its turn, and a search costs the same however many queues there are.
    """

    def __init__(self) -> None:
        self._behind = ""

    def find(self, scope: Scope, permits: Callable[[str, str], bool]) -> list[Lane]:
        """Return lanes that the worker serves and that are not paused; none only if there are none."""

        def wanted(lanes: list[Lane]) -> list[Lane]:
            return [lane for lane in lanes if scope.serves(lane) and permits(*lane)]

        if scope.queues:
            return wanted(lanes_of(scope.queues))
        found: list[Lane] = []
        for lanes in self._once_round(self._behind):
            found += wanted(lanes)
            if len({lane.queue for lane in found}) >= ENOUGH:
                self._behind = lanes[-1].queue
                return found
        self._behind = ""
        return found

    def _once_round(self, behind: str) -> Iterator[list[Lane]]:
        """Yield the lanes of all queues, those behind this one first."""
        yield from pages_of_lanes(behind, ENOUGH)
        for lanes in pages_of_lanes("", ENOUGH) if behind else ():
            yield [lane for lane in lanes if lane.queue <= behind]
            if lanes[-1].queue >= behind:
                return
