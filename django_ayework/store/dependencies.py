"""Waiters and their edges: what gates and blocked works wait for.

A waiter has one row with its condition and its counts, and one edge to each work or chain that it watches. An
edge has the outcome of what it watches, or '' while that is open. Edges and counts are written under the lock
of their waiter's row (:mod:`django_ayework.store.resolution`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from django.db.models import QuerySet

from django_ayework.models import Edge, Waiter
from django_ayework.rules.conditions import Tally
from django_ayework.rules.states import Status
from django_ayework.store.bulk import insert_many
from django_ayework.store.database import fetch, found_in, is_postgresql, rows, vendor
from django_ayework.store.insert import can_copy, copy_rows
from django_ayework.store.parameters import source_of

WAITER = Waiter._meta.db_table
EDGE = Edge._meta.db_table
#: The columns of a new edge, and the number of edges from which on COPY is quicker.
EDGE_COLUMNS = ("waiter_id", "watched_id", "chain", "position", "outcome")
WORTH_COPYING = 200


class WaiterRow(NamedTuple):
    """A waiter's row."""

    work_id: str
    condition: str
    on_unmet: str
    total: int
    succeeded: int
    missed: int
    recheck: bool

    @property
    def tally(self) -> Tally:
        """The counts that the condition is decided by."""
        return Tally(self.total, self.succeeded, self.missed)


class Watch(NamedTuple):
    """A work or a whole chain that a waiter watches; with its outcome, if that is known."""

    id: str
    chain: bool = False
    outcome: str = ""


def insert_waiters(waiters: Sequence[WaiterRow], watched: Mapping[str, Sequence[Watch]]) -> None:
    """Insert waiters, and their edges in the order in which ids are watched."""
    rows(Waiter).bulk_create([Waiter(**waiter._asdict()) for waiter in waiters], batch_size=500)
    edges = [
        (waiter, watch.id, watch.chain, place, watch.outcome)
        for waiter, watches in watched.items()
        for place, watch in enumerate(watches)
    ]
    copies = len(edges) >= WORTH_COPYING and is_postgresql() and can_copy()
    (copy_rows if copies else insert_many)(Edge, EDGE_COLUMNS, edges)


def lock_waiters(ids: Iterable[str], skip_locked: bool = False) -> dict[str, WaiterRow]:
    """Lock waiters in id order, so that two settlements that share several waiters cannot deadlock."""
    waiters = rows(Waiter).select_for_update(skip_locked=skip_locked).order_by("work_id")
    return waiters_among(waiters, sorted(ids))


def read_waiters(ids: Iterable[str]) -> dict[str, WaiterRow]:
    """Read waiters without locking them."""
    return waiters_among(rows(Waiter).all(), ids)


def waiters_among(waiters: QuerySet[Waiter], ids: Iterable[str]) -> dict[str, WaiterRow]:
    """Return those of these waiters that a query finds."""
    found = found_in(waiters.values_list(*WaiterRow._fields), "work_id", ids)
    return {row[0]: WaiterRow._make(row) for row in found}


def watched_by(waiter: str) -> tuple[str, ...]:
    """Return the ids that a waiter watches, in order."""
    return watched_by_all([waiter]).get(waiter, ())


def watched_by_all(waiters: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the ids that each waiter watches, in order."""
    watched: dict[str, list[str]] = defaultdict(list)
    edges = rows(Edge).order_by("waiter_id", "position").values_list("waiter_id", "watched_id")
    for waiter, id in found_in(edges, "waiter_id", waiters):
        watched[waiter].append(id)
    return {waiter: tuple(ids) for waiter, ids in watched.items()}


def missed_by(waiter: str, limit: int) -> list[tuple[str, str]]:
    """Return the first watched ids that ended without success, each with its outcome."""
    missed = rows(Edge).filter(waiter_id=waiter, outcome__in=[str(Status.DEAD), str(Status.CANCELLED)])
    return list(missed.order_by("position").values_list("watched_id", "outcome")[:limit])


def first_open(waiter: str, limit: int) -> list[Watch]:
    """Return the first works and chains whose outcome is not known."""
    edges = rows(Edge).filter(waiter_id=waiter, outcome="").order_by("position")
    return [Watch(*edge) for edge in edges.values_list("watched_id", "chain")[:limit]]


class EdgeRow(NamedTuple):
    """An edge's row."""

    id: int
    waiter_id: str
    watched_id: str
    chain: bool
    outcome: str


@dataclass(frozen=True, slots=True)
class Outcomes:
    """How works and chains ended, by id; None undoes an end."""

    works: Mapping[str, Status | None]
    chains: Mapping[str, Status | None]

    @property
    def ids(self) -> set[str]:
        """The ids of all works and chains."""
        return {*self.works, *self.chains}

    def undoes(self) -> bool:
        """Tell whether a work or chain that had ended is live again."""
        return None in self.works.values() or None in self.chains.values()

    def of(self, edge: EdgeRow) -> str:
        """Return the outcome of what an edge watches; the one that it has, if there is no newer one."""
        ends = self.chains if edge.chain else self.works
        return str(ends[edge.watched_id] or "") if edge.watched_id in ends else edge.outcome


#: Joins edges with the ids ``v.v0`` that they watch, so that the index is read once per id. OFFSET 0 keeps
#: the inner query whole: PostgreSQL has no statistics of edges that were inserted a moment ago, takes their
#: ids for common ones, and would read every edge. SQLite keeps the order of a CROSS JOIN. MySQL and MariaDB
#: look for each id of an IN twice, once while they plan; those of a STRAIGHT_JOIN once.
EDGE_JOINS = {
    "postgresql": f"CROSS JOIN LATERAL (SELECT * FROM {EDGE} WHERE watched_id = v.v0 OFFSET 0) AS edge",
    "sqlite": f"CROSS JOIN {EDGE} AS edge ON edge.watched_id = v.v0",
    "mysql": f"STRAIGHT_JOIN {EDGE} AS edge ON edge.watched_id = v.v0",
}


def edges_to(watched: Iterable[str]) -> list[EdgeRow]:
    """Return all edges to these works and chains."""
    if not (ids := list(watched)):
        return []
    source = source_of([Edge._meta.get_field("watched_id")], [ids])
    columns = ", ".join(f"edge.{name}" for name in EdgeRow._fields)
    found = fetch(f"SELECT {columns} FROM {source.sql} {EDGE_JOINS[vendor()]}", source.params, often=True)
    return list(map(EdgeRow._make, found))


def watchers_of(ids: Iterable[str]) -> set[str]:
    """Return the waiters that watch any of these works and chains."""
    return {edge.waiter_id for edge in edges_to(ids)}
