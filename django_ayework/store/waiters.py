"""Waiters and their edges."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from django_ayework.models import Edge, Waiter
from django_ayework.rules.conditions import Tally
from django_ayework.rules.states import Status, is_terminal
from django_ayework.store.bulk import update_rows
from django_ayework.store.database import chunked, rows


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
        """How the watched works stand."""
        return Tally(self.total, self.succeeded, self.missed)


class EdgeRow(NamedTuple):
    """An edge's row."""

    id: int
    waiter_id: str
    watched_id: str
    chain: bool
    outcome: str


class Watch(NamedTuple):
    """What a new waiter watches: a work, or a whole chain; with its outcome, if it has ended before."""

    id: str
    chain: bool = False
    outcome: str = ""


@dataclass(frozen=True, slots=True)
class News:
    """How works and chains ended, by id; None undoes an end."""

    works: Mapping[str, Status | None]
    chains: Mapping[str, Status | None]

    @property
    def ids(self) -> set[str]:
        """Every id there is news of."""
        return {*self.works, *self.chains}

    def undoes(self) -> bool:
        """Tell whether something that had ended is live again."""
        return None in self.works.values() or None in self.chains.values()

    def concerns(self, edge: EdgeRow) -> bool:
        """Tell whether there is news of what the edge watches."""
        return edge.watched_id in (self.chains if edge.chain else self.works)

    def outcome(self, edge: EdgeRow) -> str:
        """Return the edge's new outcome."""
        return str((self.chains if edge.chain else self.works)[edge.watched_id] or "")


def insert_waiters(waiters: Sequence[WaiterRow], watched: Mapping[str, Sequence[Watch]]) -> None:
    """Insert waiters, and an edge to each watched id in order."""
    rows(Waiter).bulk_create([Waiter(**waiter._asdict()) for waiter in waiters], batch_size=500)
    edges = (
        Edge(waiter_id=waiter, watched_id=watch.id, position=place, chain=watch.chain, outcome=watch.outcome)
        for waiter, watches in watched.items()
        for place, watch in enumerate(watches)
    )
    rows(Edge).bulk_create(edges, batch_size=2000)


def watchers_of(ids: Iterable[str]) -> set[str]:
    """Return the works that watch any of these ids."""
    found: set[str] = set()
    for some in chunked(list(ids)):
        found.update(rows(Edge).filter(watched_id__in=some).values_list("waiter_id", flat=True).distinct())
    return found


def lock_waiters(ids: Iterable[str]) -> dict[str, WaiterRow]:
    """Lock waiters in id order, so that two settlements that meet at several cannot wait for each other."""
    locked: dict[str, WaiterRow] = {}
    for some in chunked(sorted(ids)):
        chosen = rows(Waiter).select_for_update().filter(work_id__in=some).order_by("work_id")
        locked.update((row[0], WaiterRow._make(row)) for row in chosen.values_list(*WaiterRow._fields))
    return locked


def record_outcomes(waiters: Mapping[str, WaiterRow], news: News) -> dict[str, WaiterRow]:
    """Write how what is watched ended, and recount; return the locked waiters' rows.

    The edges are read here, after the locks, so that no rival's outcome is missed or counted twice.
    """
    changed: dict[str, list[tuple[EdgeRow, str]]] = defaultdict(list)
    for edge in edges_between(waiters, news.ids):
        if news.concerns(edge) and edge.outcome != news.outcome(edge):
            changed[edge.waiter_id].append((edge, news.outcome(edge)))
    write_outcomes([change for changes in changed.values() for change in changes])
    recounted = {id: recount(waiters[id], changes) for id, changes in changed.items()}
    write_tallies(recounted.values())
    return {**waiters, **recounted}


def edges_between(waiters: Iterable[str], watched: Iterable[str]) -> list[EdgeRow]:
    """Return the edges from these waiters to these ids."""
    watching = set(waiters)
    found = []
    for some in chunked(list(watched)):
        edges = rows(Edge).filter(watched_id__in=some).values_list(*EdgeRow._fields)
        found += [EdgeRow._make(edge) for edge in edges if edge[1] in watching]
    return found


def write_outcomes(changes: Iterable[tuple[EdgeRow, str]]) -> None:
    """Write outcomes onto edges, one statement per outcome."""
    by_outcome: dict[str, list[int]] = defaultdict(list)
    for edge, outcome in changes:
        by_outcome[outcome].append(edge.id)
    for outcome, ids in by_outcome.items():
        for some in chunked(sorted(ids)):
            rows(Edge).filter(id__in=some).update(outcome=outcome)


def recount(waiter: WaiterRow, changes: Iterable[tuple[EdgeRow, str]]) -> WaiterRow:
    """Return the waiter with its counts moved by the changed outcomes."""
    succeeded, missed = waiter.succeeded, waiter.missed
    for edge, outcome in changes:
        succeeded += (outcome == Status.SUCCESS) - (edge.outcome == Status.SUCCESS)
        missed += is_missed(outcome) - is_missed(edge.outcome)
    return waiter._replace(succeeded=succeeded, missed=missed)


def is_missed(outcome: str) -> bool:
    """Tell whether this outcome is an end without success."""
    return is_terminal(outcome) and outcome != Status.SUCCESS


def write_tallies(waiters: Iterable[WaiterRow]) -> None:
    """Write the counts of locked waiters."""
    update_rows(Waiter, {w.work_id: {"succeeded": w.succeeded, "missed": w.missed} for w in waiters})


def read_waiters(ids: Iterable[str]) -> dict[str, WaiterRow]:
    """Read waiters without locking them."""
    chosen = rows(Waiter).filter(work_id__in=list(ids)).values_list(*WaiterRow._fields)
    return {row[0]: WaiterRow._make(row) for row in chosen}


def watched_by(waiter: str) -> list[tuple[str, str]]:
    """Return the ids a waiter watches, in order, each with its outcome ('' while open)."""
    edges = rows(Edge).filter(waiter_id=waiter).order_by("position")
    return list(edges.values_list("watched_id", "outcome"))


def missed_by(waiter: str, limit: int) -> list[tuple[str, str]]:
    """Return the first watched ids that ended without success, each with its outcome."""
    missed = rows(Edge).filter(waiter_id=waiter, outcome__in=[str(Status.DEAD), str(Status.CANCELLED)])
    return list(missed.order_by("position").values_list("watched_id", "outcome")[:limit])


def first_open(waiter: str, limit: int) -> list[Watch]:
    """Return the first works and chains whose end is not known."""
    edges = rows(Edge).filter(waiter_id=waiter, outcome="").order_by("position")
    return [Watch(*edge) for edge in edges.values_list("watched_id", "chain")[:limit]]


def watched_by_all(waiters: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return what each waiter watches, in order."""
    watched: dict[str, list[str]] = defaultdict(list)
    edges = rows(Edge).filter(waiter_id__in=list(waiters)).order_by("waiter_id", "position")
    for waiter, id in edges.values_list("waiter_id", "watched_id"):
        watched[waiter].append(id)
    return {waiter: tuple(ids) for waiter, ids in watched.items()}
