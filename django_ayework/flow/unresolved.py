"""What a process remembers of rechecks that are not complete, to repeat no more of them than it must."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from django_ayework.store.second_looks import OpenEdge, edges_by_id, open_edges, waiters_to_recheck

#: Edges that are remembered of a waiter, and waiters of which any are. What is forgotten is looked up anew.
MOST_EDGES = 1000
MOST_WAITERS = 10_000


class Unresolved:
    """Open edges by waiter: those whose works were locked when all its other edges were dealt with.

    A settlement that begins later finds the other edges by itself. Thus a gate over very many works, one of
    which is locked for long, is read once and not at every recheck. Ids of edges are never used twice: a
    waiter that is new under an old id is not taken for the old one.
    """

    def __init__(self) -> None:
        self._edges: dict[str, list[int]] = {}

    def edges_of(self, waiters: Sequence[str]) -> list[OpenEdge]:
        """Return the edges to look at, and forget what is remembered of these waiters."""
        remembered = [id for waiter in waiters for id in self._edges.pop(waiter, ())]
        known = edges_by_id(remembered)
        partly = {edge.waiter_id for edge, _ in known}
        edges = [edge for edge, outcome in known if not outcome and edge.waiter_id in waiters]
        return edges + open_edges([waiter for waiter in waiters if waiter not in partly])

    def remember(self, edges: Sequence[OpenEdge], waiters: Collection[str]) -> None:
        """Remember these edges of waiters all of whose others were dealt with."""
        found: dict[str, list[int]] = defaultdict(list)
        for edge in edges:
            if edge.waiter_id in waiters:
                found[edge.waiter_id].append(edge.id)
        if len(self._edges) + len(found) > MOST_WAITERS:
            self._edges.clear()
        self._edges.update((waiter, ids) for waiter, ids in found.items() if len(ids) <= MOST_EDGES)


class Rotation:
    """Pages of the waiters to recheck, each behind the last, so that locked waiters do not starve others."""

    def __init__(self) -> None:
        self._last = ""

    def next_page(self, limit: int) -> list[str]:
        """Return the next waiters to recheck."""
        page = waiters_to_recheck(limit, self._last)
        self._last = page[-1] if page else ""
        return page
