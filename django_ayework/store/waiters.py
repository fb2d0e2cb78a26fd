"""Waiters and their edges."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from django_ayework.models import Edge, Waiter
from django_ayework.rules.conditions import Tally
from django_ayework.rules.states import Status
from django_ayework.store.copying import can_copy, copy_rows
from django_ayework.store.database import chunked, is_postgresql, rows
from django_ayework.store.insertion import insert_many

WAITER = Waiter._meta.db_table
#: What is known of an edge at its birth, and from how many of them on COPY is quicker.
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
        """How the watched works stand."""
        return Tally(self.total, self.succeeded, self.missed)


class Watch(NamedTuple):
    """What a new waiter watches: a work, or a whole chain; with its outcome, if it has ended before."""

    id: str
    chain: bool = False
    outcome: str = ""


def insert_waiters(waiters: Sequence[WaiterRow], watched: Mapping[str, Sequence[Watch]]) -> None:
    """Insert waiters, and an edge to each watched id in order."""
    rows(Waiter).bulk_create([Waiter(**waiter._asdict()) for waiter in waiters], batch_size=500)
    edges = [
        (waiter, watch.id, watch.chain, place, watch.outcome)
        for waiter, watches in watched.items()
        for place, watch in enumerate(watches)
    ]
    copies = len(edges) >= WORTH_COPYING and is_postgresql() and can_copy()
    (copy_rows if copies else insert_many)(Edge, EDGE_COLUMNS, edges)


def lock_waiters(ids: Iterable[str], skip_locked: bool = False) -> dict[str, WaiterRow]:
    """Lock waiters in id order, so that two settlements that meet at several cannot wait for each other."""
    locked: dict[str, WaiterRow] = {}
    for some in chunked(sorted(ids)):
        chosen = rows(Waiter).select_for_update(skip_locked=skip_locked).filter(work_id__in=some)
        chosen = chosen.order_by("work_id")
        locked.update((row[0], WaiterRow._make(row)) for row in chosen.values_list(*WaiterRow._fields))
    return locked


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
